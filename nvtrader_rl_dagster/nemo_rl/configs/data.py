"""The files that a run trains on or is scored on, with their row counts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TrainingData:
    """Files of a run, their row counts, and where in which feedback store they end. validation: None without one."""

    train: Path
    validation: Path | None
    train_rows: int
    validation_rows: int
    data_version: str = ""
    ledger_id: str = ""
    through_seq: int = 0
    validation_fraction: float = 0.0

    @property
    def validates(self) -> bool:
        return self.validation is not None and self.validation_rows > 0

    @property
    def held_out(self) -> Path:
        """The validation file. Raises `ValueError` where there is none."""
        if self.validation is None:
            raise ValueError(f"{self.train} has no validation file beside it")
        return self.validation


class PreferenceData(TrainingData):
    """Rank-shape pairs: `{"context": […], "completions": [{"rank": 0, "completion": […]}, {"rank": 1, …}]}`."""


class ChatData(TrainingData):
    """Conversations: `{"messages": [{"role": …, "content": …}, …]}`, the last message from the assistant."""


class PromptData(TrainingData):
    """Prompts with what their answers are judged by: `{"input": str, "output": str}`."""


@dataclass(frozen=True)
class BenchmarkData:
    """A local JSON or CSV file of problems with their solutions."""

    file: Path
    rows: int
    problem_key: str = "problem"
    solution_key: str = "solution"
    data_version: str = ""
