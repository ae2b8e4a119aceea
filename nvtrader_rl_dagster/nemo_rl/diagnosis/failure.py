"""What one entry of the table of known failures says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(str, Enum):
    """What a match is worth.

    cause: the reason itself. symptom: follows from a reason that may stand elsewhere in the log. noise: comes after
    the reason. informational: a warning that is never the reason. state: known from the run, not from its log.
    """

    CAUSE = "cause"
    SYMPTOM = "symptom"
    NOISE = "noise"
    INFORMATIONAL = "informational"
    STATE = "state"


@dataclass(frozen=True)
class KnownFailure:
    """One failure with a name.

    shows: the message as people search for it. meaning, handled (what the bootstrap or the bridge does about it)
    and remedy: sentences for people. raised: regular expressions, searched in `Type: message` of an exception.
    frames: one that must occur in the traceback of that exception as well. printed: texts that a line starts with,
    apart from time stamps, levels and drawing characters. gotcha: its number in the specification's list.
    """

    code: str
    title: str
    shows: str
    meaning: str
    remedy: str
    handled: str = ""
    raised: tuple[str, ...] = ()
    frames: str = ""
    printed: tuple[str, ...] = ()
    kind: Kind = Kind.CAUSE
    gotcha: int | None = None
