"""Names the failure of a training from its log. Only for a training that failed: a log may quote any message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nvtrader_rl_dagster.nemo_rl.diagnosis.failure import Kind, KnownFailure
from nvtrader_rl_dagster.nemo_rl.diagnosis.lines import Line
from nvtrader_rl_dagster.nemo_rl.diagnosis.scan import scan
from nvtrader_rl_dagster.nemo_rl.diagnosis.table import TABLE
from nvtrader_rl_dagster.nemo_rl.diagnosis.tracebacks import Raised, Traceback

_LONGEST = 500
_MARKERS = [text for failure in TABLE if failure.kind is not Kind.INFORMATIONAL for text in failure.printed]


@dataclass(frozen=True)
class Diagnosis:
    """failure: None when it is not a known one. line: what shows it, empty when the log has no error at all."""

    failure: KnownFailure | None
    line: str


@dataclass(frozen=True)
class _Match:
    """n: the line's number. rank: of the pattern that fits; the first of an entry says most."""

    n: int
    failure: KnownFailure
    line: str
    rank: int = 0


def diagnose(log: Path, first_line: int = 1) -> Diagnosis:
    """The reason why the training failed that wrote the lines from `first_line` on.

    It is in the chain of exceptions that ended the driver: the first cause there, or that last exception itself when
    the table does not have it. Where the chain only says that something else broke, or where there is none, it is the
    earliest cause in any other traceback or line since the last sign of progress.
    """
    evidence = scan(log, first_line, _MARKERS)
    chains = [(traceback, list(_matches(traceback))) for traceback in evidence.tracebacks]
    noise = [match for _, matches in chains for match in matches if match.failure.kind is Kind.NOISE]
    chains = [(t, [m for m in matches if m not in noise]) for t, matches in chains if not t.ignored]
    ended = [(t, matches) for t, matches in chains if t.driver and (matches or not _only_noise(t, noise))]
    fatal, in_fatal = ended[-1] if ended else (None, [])
    if fatal and not in_fatal:
        return Diagnosis(None, _shortened(fatal.raised[-1].text))
    elsewhere = [match for t, matches in chains if t is not fatal for match in matches]
    elsewhere += [match for line in evidence.printed if (match := _printed(line))]
    ordered = [*in_fatal, *sorted(elsewhere, key=lambda match: match.n)]
    for kind in (Kind.CAUSE, Kind.SYMPTOM):
        if found := next((match for match in ordered if match.failure.kind is kind), None):
            same = [match for match in ordered if match.failure is found.failure]
            if kind is Kind.CAUSE and found in in_fatal:
                best = min((match for match in same if match in in_fatal), key=lambda match: match.rank)
            else:
                best = min(same, key=lambda match: match.n)
            return Diagnosis(found.failure, _shortened(best.line))
    return Diagnosis(noise[0].failure, noise[0].line) if noise else Diagnosis(None, "")


def _matches(traceback: Traceback) -> Iterator[_Match]:
    for raised in traceback.raised:
        if match := next((match for failure in TABLE if (match := _match(failure, raised))), None):
            yield match


def _match(failure: KnownFailure, raised: Raised) -> _Match | None:
    if failure.kind is Kind.INFORMATIONAL or (failure.frames and not _compiled(failure.frames).search(raised.frames)):
        return None
    whole = raised.whole
    for rank, pattern in enumerate(failure.raised):
        if found := _compiled(pattern).search(whole):
            # A message of several lines is shown as far as it was needed.
            end = whole.find("\n", found.end())
            return _Match(raised.n, failure, " ".join(whole[: end if end >= 0 else None].split()), rank)
    return None


def _printed(line: Line) -> _Match | None:
    message = line.message
    for failure in TABLE:
        if failure.kind is not Kind.INFORMATIONAL and message.startswith(failure.printed):
            return _Match(line.n, failure, line.text.strip())
    return None


def _only_noise(traceback: Traceback, noise: list[_Match]) -> bool:
    return {raised.n for raised in traceback.raised} <= {match.n for match in noise}


def _shortened(line: str) -> str:
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
