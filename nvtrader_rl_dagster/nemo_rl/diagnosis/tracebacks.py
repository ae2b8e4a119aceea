"""Exceptions out of printed tracebacks: Python's own chains, and those that Ray carries over from a worker."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from nvtrader_rl_dagster.nemo_rl.diagnosis.lines import Line

_HEADER = re.compile(r"\s*(?P<inner>Original )?Traceback \(most recent call last\):(?P<rank> \(RANK \d+\))?")
#: Ray puts this in place of the header when a worker raised; the exception that wraps it stands on the same line.
_RAY_HEADER = re.compile(r"(?:.*\s)?ray::[\w.<>\[\] ]+\(\) \(pid=")
_CHAIN = re.compile(
    r"During handling of the above exception, another exception occurred:"
    r"|The above exception was the direct cause of the following exception:"
)
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:\([\w.]+\))?(?::|$)")
#: The training had ended before.
_IGNORED = re.compile(r"Exception ignored |Error in atexit|Exception in callback|--- Logging error")
_IN_THREAD = re.compile(r"Exception in thread")
_NEXT_OUTPUT = re.compile(
    r"\[?\d{4}-\d\d-\d\d[ T]\d\d:|(?:INFO|WARNING|DEBUG|ERROR)[ :]|\*\*\* SIG"
    r"|Exception (?:ignored|in) |Error in atexit|--- Logging error"
)
_MESSAGE_LINES = 12
_FRAME_LINES = 60
_ODD_LINES = 5


@dataclass
class Raised:
    """One exception. text: `Type: message`; more: the further lines of its message. frames: what stood above it."""

    n: int
    text: str
    frames: str
    more: list[str] = field(default_factory=list)

    @property
    def whole(self) -> str:
        return "\n".join([self.text, *self.more])


@dataclass
class Traceback:
    """A chain of exceptions, the first one raised first.

    driver: it ended the main thread of the driver. ignored: it came while the program ended anyway. headers: numbers
    of the lines that begin its parts.
    """

    driver: bool
    ignored: bool
    raised: list[Raised] = field(default_factory=list)
    headers: set[int] = field(default_factory=set)


def read_traceback(lines: Iterable[Line], before: str = "") -> Traceback:
    """The chain whose header is the first line. Lines of other sources in between are passed over.

    before: the text of the line above the header.
    """
    source: str | None = None
    result = Traceback(False, bool(_IGNORED.match(before)))
    frames: list[str] = []
    current: Raised | None = None
    blank = chained = False
    odd = 0
    for line in lines:
        if source is None:
            source = line.source
            result.driver = not source and not _IN_THREAD.match(before)
        if line.source != source:
            continue
        text = line.text
        header = _HEADER.match(text)
        if header or _RAY_HEADER.match(text):
            # A loader's or a rank's traceback stands within the message of another one.
            within = header is None or header.group("inner") or header.group("rank")
            if current is not None and not chained and (blank or not within):
                break  # another traceback
            result.headers.add(line.n)
            frames, current, blank, chained = [], None, False, False
        elif _CHAIN.match(text):
            chained = True
        elif not text.strip():
            blank = blank or current is not None
        elif current is None:
            if text.startswith("  "):
                frames = [*frames[1 - _FRAME_LINES :], text]
            elif _EXCEPTION.match(text):
                current = Raised(line.n, text.strip(), "\n".join(frames))
                result.raised.append(current)
            else:  # somebody printed in between
                odd += 1
                if odd > _ODD_LINES:
                    break
        elif blank or len(current.more) >= _MESSAGE_LINES or _NEXT_OUTPUT.match(text):
            break
        else:
            current.more.append(text)
    return result
