"""What an import read, kept and set aside; `to_dict()` is what `feedback import --json` prints."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

FIRST_PROBLEMS = 20


@dataclass
class FileReport:
    """One file. formats: rows read per format. partial: the file was not read to its end. problem: no_rows or None."""

    path: str
    formats: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    refused: int = 0
    partial: bool = False
    problem: str | None = None


@dataclass
class ImportReport:
    """The outcome of one import.

    rows: decisions read (a row that is refused counts once). usable_pairs: pairs that rest on at least one of
    them. decisions_used: approvals and rejections that are in a pair. set_aside: all the rest by reason.
    Comparisons only: rows = usable_pairs + Σ set_aside; decisions only: rows = decisions_used + Σ set_aside.
    events: newly appended; already_stored: read again. ranks: how rows with more than two answers were read.
    """

    rows: int = 0
    usable_pairs: int = 0
    decisions_used: int = 0
    set_aside: Counter[str] = field(default_factory=Counter)
    events: int = 0
    already_stored: int = 0
    ranks: str = "best_vs_worst"
    files: list[FileReport] = field(default_factory=list)
    first_problems: list[dict[str, Any]] = field(default_factory=list)

    @property
    def full(self) -> bool:
        """Whether the list of first problems takes no more."""
        return len(self.first_problems) >= FIRST_PROBLEMS

    def note(self, problem: dict[str, Any]) -> None:
        """Keep the problem if it is among the first ones."""
        if not self.full:
            self.first_problems.append(problem)

    @property
    def partial(self) -> bool:
        """Whether any file was not read to its end."""
        return any(file.partial for file in self.files)

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "set_aside": dict(sorted(self.set_aside.items())), "partial": self.partial}
