"""Pages of a run's `log.jsonl`, found by bisection over byte offsets: no index file, no full read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import orjson

from nvtrader_rl_dagster.nemo_rl.log_parser import clean

_NUMBER = re.compile(rb'\{\s*"n"\s*:\s*(\d+)\s*,')
_PREFIX_BYTES = 64
#: Below this distance reading on is cheaper than another probe.
_NEAR_BYTES = 1 << 13
_LARGEST_READ = 1 << 20


@dataclass(frozen=True)
class LogLine:
    """One line of output. n counts from 1; ts is ISO 8601 in UTC; text is what a terminal would show."""

    n: int
    ts: str
    text: str


@dataclass(frozen=True)
class LogPage:
    """Lines in order. next_line: `since_line` of the next call. total: number of the last complete line."""

    lines: list[LogLine]
    next_line: int
    total: int


def tail(path: Path, since_line: int | None = None, max_lines: int = 200) -> LogPage:
    """The lines after `since_line`, at most `max_lines`; without `since_line` the last `max_lines`.

    Takes time proportional to the page plus the logarithm of the file size. A half-written last line is left
    for the next call, and a file that is not there yet is empty. A `since_line` behind the end (the log was
    replaced by a shorter one) gives no line, and `next_line` goes back to the end. The file is opened once, so
    a page never mixes a log with the one that replaces it.

    Raises `ValueError` for negative arguments and for a line that is no log line.
    """
    if since_line is not None and since_line < 0:
        raise ValueError(f"since_line={since_line} must be at least 0; 0 starts with the first line")
    if max_lines < 0:
        raise ValueError(f"max_lines={max_lines} must be at least 0, such as 200")
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return LogPage([], 0, 0)
    with file:
        end = _line_start(file, file.seek(0, 2))
        if end == 0:
            return LogPage([], 0, 0)
        total = _number(file, path, _line_start(file, end - 1))
        since = max(0, total - max_lines) if since_line is None else min(since_line, total)
        lines: list[LogLine] = []
        if since < total and max_lines:
            at = _seek_line(file, path, since + 1, end)
            while len(lines) < max_lines and at < end:
                raw = file.readline()
                lines.append(_parse(raw, path, at))
                at += len(raw)
        return LogPage(lines, lines[-1].n if lines else since, total)


def _line_start(file: BinaryIO, before: int) -> int:
    """Offset behind the last newline within the first `before` bytes; 0 when there is none."""
    step = _NEAR_BYTES
    while before > 0:
        start = max(0, before - step)
        file.seek(start)
        found = file.read(before - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        before, step = start, min(2 * step, _LARGEST_READ)
    return 0


def _seek_line(file: BinaryIO, path: Path, number: int, end: int) -> int:
    """Position the file at the first line with this number or a higher one, which is there before `end`.

    Returns its offset. Numbers are missing where lines were lost on a full disk.
    """
    low, high = 0, end  # the line starts within; `low` is the start of a line, `high` any offset
    while high - low > _NEAR_BYTES:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline()
        start = file.tell()
        if start >= end or _number(file, path, start) > number:
            high = middle
        else:
            low = start
    while _number(file, path, low) < number:
        file.seek(low)
        file.readline()
        low = file.tell()
    return file.seek(low)


def _number(file: BinaryIO, path: Path, start: int) -> int:
    file.seek(start)
    match = _NUMBER.match(file.read(_PREFIX_BYTES))
    if match is None:
        raise ValueError(f'{path}: the line at byte {start} does not start with {{"n": <number>, {_REMEDY}')
    return int(match.group(1))


def _parse(raw: bytes, path: Path, at: int) -> LogLine:
    try:
        row = orjson.loads(raw)
        return LogLine(row["n"], row["ts"], clean(row["text"]))
    except (orjson.JSONDecodeError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path}: the line at byte {at} has no n, ts and text ({error!r}); {_REMEDY}") from error


_REMEDY = "it was changed by hand or damaged; read the file with another tool"
