"""Where state lives: one folder, `NVTRADER_RL_HOME` (default `./data`), and the layout inside it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

HOME_VARIABLE = "NVTRADER_RL_HOME"
STORE_VARIABLE = "NVTRADER_RL_STORE"


@dataclass(frozen=True)
class Home:
    """Paths below the state folder. Nothing is created by asking for a path."""

    root: Path

    @classmethod
    def from_env(cls, root: str | os.PathLike[str] | None = None) -> Home:
        """`root` if given, else `NVTRADER_RL_HOME`, else `./data`; always absolute."""
        return cls(Path(root or os.environ.get(HOME_VARIABLE) or "data").expanduser().resolve())

    @property
    def store_url(self) -> str:
        """SQLAlchemy URL of the feedback store: `NVTRADER_RL_STORE` (for PostgreSQL), else SQLite here."""
        return os.environ.get(STORE_VARIABLE) or f"sqlite:///{self.root / 'feedback.db'}"

    @property
    def pairs(self) -> Path:
        return self.root / "pairs"

    @property
    def runs(self) -> Path:
        return self.root / "nemo_rl" / "runs"

    @property
    def lease(self) -> Path:
        """Lock file of the GPU: whoever holds it may train or score."""
        return self.root / "nemo_rl" / "gpu.lease"

    @property
    def failed_windows(self) -> Path:
        """Notes of requested trainings that failed before they had a run folder; one file per feedback store."""
        return self.root / "nemo_rl" / "failed_windows"

    @property
    def lengths(self) -> Path:
        """Token counts of data sets that were looked at before; nothing is lost with them."""
        return self.root / "nemo_rl" / "lengths"

    @property
    def inbox(self) -> Path:
        """Feedback files dropped here are imported by themselves."""
        return self.root / "inbox"

    @property
    def evals(self) -> Path:
        return self.root / "evals"

    @property
    def champion(self) -> Path:
        return self.root / "champion"

    @property
    def dagster_home(self) -> Path:
        """`DAGSTER_HOME` if the user set one, else a folder of ours."""
        return Path(os.environ.get("DAGSTER_HOME") or self.root / "dagster")

    def dataset(self, shape: str) -> Path:
        return self.root / "datasets" / shape
