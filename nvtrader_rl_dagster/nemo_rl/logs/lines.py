"""Which lines of a log can matter, found without looking at the others, and what a terminal shows of a line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import orjson

#: How the lines of the driver that carry something start. A line that starts otherwise never changes a result.
_STARTS = (
    "={25} (?:Epoch|Step) ",
    "📊 (?:Training Results|Validation Results|Using checkpoint directory)",
    "▶ Starting validation at step ",
    "• ",
    "⏱",
    "Saving checkpoint for step ",
    "Removing checkpoint ",
    "SETUP COMPLETE",
    "Max number of steps has been reached",
    "Timeout has been reached",
    "Generation sample buffer size: ",
    r"Traceback \(most recent call last\)",
    "Exception ignored in",
    "Exception in thread",
    "--- Logging error ---",
    "(?:model_name|metric|score)=",
)
_START = f"(?:{'|'.join(_STARTS)})"
_INDENT = r"(?: |\t|\x1b\[[0-?]*[ -/]*[@-~])*"
_JSON_INDENT = r"(?: |\\t|\\u001b\[[0-?]*[ -/]*[@-~])*"
#: Workers, tables and empty lines are most of a log; this turns them away at their first byte.
_NOISE = rb'(?![\n"(\[0-9A-DFH-LN-QU-Za-ln-rt-z]|%s\[\d+m\(|\xe2[\x94\x95])'

#: ECMA-48 control sequences, control strings (window titles, links) and other escapes, each also when cut short;
#: single control characters except tab, line feed and carriage return.
_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\r\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"
)
#: Ray writes a worker's line as `(Class[rank=0] pid=7, ip=…) text`, also in the middle of a line of the driver.
_WORKER = re.compile(r"\((?:(?:[A-Za-z_][\w.:]*(?:\[[^\]]*\])? )?pid=|raylet\b)")


@dataclass(frozen=True)
class LineForm:
    """How lines are stored.

    first: a line that can matter, at the start of the data, where `matters` does not find it. redrawn: one behind a
    carriage return, written as `carriage_return`. bullets: lines of plain text that are bullets. text: what was
    printed in one or more lines, "" where they are damaged.
    """

    first: re.Pattern[bytes] | None
    matters: re.Pattern[bytes]
    redrawn: re.Pattern[bytes]
    carriage_return: bytes
    bullets: re.Pattern[bytes]
    text: Callable[[bytes], str]

    def next_line(self, data: bytes, at: int) -> int:
        """Offset of the first line at `at` or behind it that can matter, and is not redrawn; -1 without one.

        `data` starts, and `at` is, at the start of a line.
        """
        if at == 0 and self.first and self.first.match(data):
            return 0
        match = self.matters.search(data, max(0, at - 1))
        return data.rfind(b"\n", 0, match.start() + 1) + 1 if match else -1

    def redrawn_lines(self, data: bytes) -> list[int]:
        """Offsets of all lines in which something that matters is behind a carriage return."""
        if self.carriage_return not in data:
            return []
        return [data.rfind(b"\n", 0, match.start()) + 1 for match in self.redrawn.finditer(data)]

    def bullets_at(self, data: bytes, at: int) -> tuple[str, int]:
        """The bullets from `at` up to the first line that is something else, and the offset of that line.

        Only those whose text is what was printed, wholly the driver's.
        """
        match = self.bullets.match(data, at)
        if match is None:
            return "", at
        region = match.group()
        return ("", at) if b"pid=" in region or b"(raylet" in region else (self.text(region), match.end())


def _plain_text(line: bytes) -> str:
    return line.decode("utf-8", errors="replace")


def _run_log_text(lines: bytes) -> str:
    try:
        return "\n".join(str(orjson.loads(line)["text"]) for line in lines.splitlines())
    except (orjson.JSONDecodeError, TypeError, KeyError):
        return ""


_IN_BYTES = _START.encode()
PLAIN = LineForm(
    first=re.compile(_INDENT.encode() + _IN_BYTES),
    matters=re.compile(rb"\n" + _NOISE % rb"\x1b" + _INDENT.encode() + _IN_BYTES),
    redrawn=re.compile(rb"\r" + _INDENT.encode() + _IN_BYTES),
    carriage_return=b"\r",
    bullets=re.compile(rb"(?: +\xe2\x80\xa2 [ -~]*\n)+"),
    text=_plain_text,
)
#: `{"n": …, "ts": …, "text": …}` a line, as the supervisor writes it.
RUN_LOG = LineForm(
    first=None,
    matters=re.compile(rb'"text": ?"' + _NOISE % rb"\\u001b" + _JSON_INDENT.encode() + _IN_BYTES),
    redrawn=re.compile(rb"\\r" + _JSON_INDENT.encode() + _IN_BYTES),
    carriage_return=rb"\r",
    bullets=re.compile(rb'(?:\{"n":\d+,"ts":"[^"\n]*","text":" +\xe2\x80\xa2 [ !#-\[\]-~]*"\}\n)+'),
    text=_run_log_text,
)
_RUN_LOG_LINE = re.compile(rb'\{\s*"n"\s*:\s*\d+\s*,\s*"ts"\s*:')
_AT_START = re.compile(_INDENT + _START)
_REDRAWN = re.compile("\r" + _INDENT + _START)


def form_of(data: bytes) -> LineForm:
    """The form of a log that starts with `data`."""
    return RUN_LOG if _RUN_LOG_LINE.match(data) else PLAIN


def can_matter(text: str) -> bool:
    """Whether a line starts as one of the driver's that carry something."""
    return _AT_START.match(text) is not None or ("\r" in text and _REDRAWN.search(text) is not None)


def clean(raw: str) -> str:
    """What a terminal would show of one line: no escape codes, the last state of a progress bar."""
    if raw.isprintable():
        return raw  # most lines, and much faster
    # Escapes first: one behind the last carriage return would hide that the line ends there.
    return _ESCAPE.sub("", raw).rstrip("\r\n").rsplit("\r", 1)[-1]


def of_the_driver(text: str) -> str:
    """A cleaned line up to where a worker's line was printed into it; "" for a line of a worker."""
    if "(" not in text:
        return text
    worker = _WORKER.search(text)
    return text[: worker.start()] if worker else text
