"""Everything that says when something starts by itself, in one place: environment variables and their defaults."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

THRESHOLD_VARIABLE = "PREFERENCE_THRESHOLD"
RETRY_VARIABLE = "NVTRADER_RL_RETRY_PAIRS"
NIGHTLY_VARIABLE = "NVTRADER_RL_NIGHTLY"
NIGHTLY_PAIRS_VARIABLE = "NVTRADER_RL_NIGHTLY_PAIRS"
WEEKLY_VARIABLE = "NVTRADER_RL_WEEKLY"
BACKEND_VARIABLE = "NVTRADER_RL_BACKEND"
GRACE_VARIABLE = "NVTRADER_RL_GRACE"


@dataclass(frozen=True)
class Settings:
    """When trainings start.

    threshold: new usable pairs that start a training. retry_pairs: new usable pairs that start the next one after
    a failed training. nightly, weekly: cron strings in UTC. nightly_pairs: new usable pairs without which the night
    is skipped.
    """

    threshold: int = 50
    retry_pairs: int = 10
    nightly: str = "0 2 * * *"
    nightly_pairs: int = 10
    weekly: str = "0 6 * * 0"

    @classmethod
    def from_env(cls) -> Settings:
        """Raises `ValueError` that names the variable and what it must be."""
        return cls(
            threshold=_count(THRESHOLD_VARIABLE, cls.threshold),
            retry_pairs=_count(RETRY_VARIABLE, cls.retry_pairs),
            nightly=os.environ.get(NIGHTLY_VARIABLE) or cls.nightly,
            nightly_pairs=_count(NIGHTLY_PAIRS_VARIABLE, cls.nightly_pairs),
            weekly=os.environ.get(WEEKLY_VARIABLE) or cls.weekly,
        )


def device_settings() -> dict[str, Any]:
    """Settings of `GB10Resource` that the environment gives; all others are its defaults.

    Raises `ValueError` that names the variable.
    """
    found: dict[str, Any] = {}
    if backend := os.environ.get(BACKEND_VARIABLE):
        if backend not in ("auto", "nemo_rl", "local"):
            raise ValueError(f"{BACKEND_VARIABLE}={backend!r} must be auto, nemo_rl or local")
        found["backend"] = backend
    if grace := os.environ.get(GRACE_VARIABLE):
        try:
            found["grace_seconds"] = float(grace)
        except ValueError as error:
            raise ValueError(f"{GRACE_VARIABLE}={grace!r} must be a number of seconds, such as 20") from error
    return found


def _count(variable: str, default: int) -> int:
    text = os.environ.get(variable) or str(default)
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{variable}={text!r} must be a whole number of at least 1, such as {default}")
    return int(text)
