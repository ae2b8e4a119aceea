"""What a config builder returns."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True)
class BuiltConfig:
    """A YAML-ready mapping, the optimizer steps it plans, and what was changed to fit the data."""

    config: dict[str, Any]
    steps: int
    notes: list[str]

    @property
    def config_hash(self) -> str:
        """Identity of the settings, without the folders of one run."""
        named = {k: v for k, v in self.config.items() if k not in ("checkpointing", "logger")}
        return hashlib.sha256(orjson.dumps(named, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
