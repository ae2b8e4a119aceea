"""What a preflight found: findings with remedies, rows of each data set, planned steps, predicted memory and disk."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Level(str, Enum):
    """Only `refuse` keeps a run from being launched."""

    REFUSE = "refuse"
    WARN = "warn"
    OK = "ok"


@dataclass(frozen=True)
class Finding:
    """code: stable name for programs. remedy: empty when there is nothing to do."""

    level: Level
    code: str
    message: str
    remedy: str = ""


def refuse(code: str, message: str, remedy: str) -> Finding:
    return Finding(Level.REFUSE, code, message, remedy)


def warn(code: str, message: str, remedy: str) -> Finding:
    return Finding(Level.WARN, code, message, remedy)


def ok(code: str, message: str) -> Finding:
    return Finding(Level.OK, code, message)


@dataclass(frozen=True)
class SetRows:
    """Rows of one data set.

    name: `train`, or the validation set's name. rows: None when it could not be counted here (a hub data set). bad:
    rows that would end the run. too_long: rows that are masked out of the loss. longest: tokens of the longest row,
    None when unknown. lengths: how they were found (`tokens`, `bytes` for an upper bound, `estimate`, or empty).
    """

    name: str
    file: str
    rows: int | None
    bad: int = 0
    too_long: int = 0
    longest: int | None = None
    lengths: str = ""


@dataclass(frozen=True)
class Prediction:
    """Bytes that a run will need, by part, against what is there. where: which memory or disk."""

    where: str
    parts: dict[str, int]
    total: int
    available: int

    @property
    def need(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True)
class Report:
    """steps: optimizer steps that the run will make from where it starts; None when that is not known."""

    algo: str
    trainer: str
    version: str
    findings: tuple[Finding, ...]
    steps: int | None = None
    steps_per_epoch: int | None = None
    data: tuple[SetRows, ...] = ()
    memory: Prediction | None = None
    disk: Prediction | None = None

    @property
    def refusals(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level is Level.REFUSE]

    @property
    def warnings(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level is Level.WARN]

    @property
    def accepted(self) -> bool:
        return not self.refusals

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, with `accepted` on top."""
        return {"accepted": self.accepted, **asdict(self)}

    def text(self) -> str:
        """The report for people: refusals first, a remedy below each."""
        verdict = "accepted" if self.accepted else f"refused ({len(self.refusals)})"
        lines = [f"preflight of {self.algo} with {self.trainer} {self.version}".rstrip() + f": {verdict}"]
        lines += [_of_set(rows) for rows in self.data]
        if self.steps is not None:
            per_epoch = f", {self.steps_per_epoch:,} in each epoch" if self.steps_per_epoch else ""
            lines.append(f"  steps: {self.steps:,}{per_epoch}")
        for level in Level:
            for finding in self.findings:
                if finding.level is level:
                    lines.append(f"  {level.value:6} {finding.code}: {finding.message}")
                    if finding.remedy:
                        lines.append(f"         -> {finding.remedy}")
        return "\n".join(lines)


def _of_set(rows: SetRows) -> str:
    count = "not counted" if rows.rows is None else f"{rows.rows:,} rows"
    parts = [f"  {rows.name}: {count}"]
    if rows.bad:
        parts.append(f"{rows.bad:,} bad")
    if rows.too_long:
        parts.append(f"{rows.too_long:,} too long")
    if rows.longest is not None:
        bound = {"bytes": "at most ", "estimate": "about "}.get(rows.lengths, "")
        parts.append(f"longest {bound}{rows.longest:,} tokens")
    return ", ".join(parts) + f" ({rows.file})"
