"""One JSON line per kill, and the table of all of them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass
class KillRecord:
    """Seconds after the kill. `next_started` does not count the start of a server that the kill took down."""

    kill: str
    moment: str
    tree: str
    trigger: str
    fate: str
    nothing_left: float | None = None
    lease_free: float | None = None
    next_started: float | None = None
    ended: float | None = None
    server_start: float = 0.0
    passed: bool = False
    error: str = ""


def append(file: Path, record: KillRecord) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(asdict(record)) + "\n")


def table(file: Path) -> list[str]:
    """Min, median and max of the measured times for each way of killing."""
    records = [KillRecord(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
    columns = ("nothing_left", "lease_free", "next_started", "ended")
    lines = [
        "seconds after the kill: min / median / max",
        f"{'kill':28} {'passed':>8} " + " ".join(f"{column.replace('_', ' '):>20}" for column in columns),
    ]
    for kill in dict.fromkeys(record.kill for record in records):
        group = [record for record in records if record.kill == kill]
        passed = f"{sum(record.passed for record in group)}/{len(group)}"
        cells = " ".join(f"{_three(getattr(record, column) for record in group):>20}" for column in columns)
        lines.append(f"{kill:28} {passed:>8} {cells}")
    return lines


def _three(values: Iterable[float | None]) -> str:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "-"
    return " / ".join(f"{value:.1f}" for value in (min(numbers), statistics.median(numbers), max(numbers)))
