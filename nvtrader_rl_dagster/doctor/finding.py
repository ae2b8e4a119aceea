"""What one check found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Status(str, Enum):
    """Only an error makes `nvtrader-rl doctor` fail."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """check: its name. remedy: empty when there is nothing to do."""

    check: str
    status: Status
    message: str
    remedy: str = ""


def ok(check: str, message: str) -> Finding:
    return Finding(check, Status.OK, message)


def warning(check: str, message: str, remedy: str) -> Finding:
    return Finding(check, Status.WARNING, message, remedy)


def error(check: str, message: str, remedy: str) -> Finding:
    return Finding(check, Status.ERROR, message, remedy)


def gigabytes(count: float) -> str:
    """`1.6 GB`; small ones as `24 MB`."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def existing_parent(path: Path) -> Path:
    """The path itself, or the nearest folder above it that is there: it lies on the same disk."""
    while not path.exists():
        path = path.parent
    return path
