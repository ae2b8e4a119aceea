"""Finds the places of a large log that may say why a training failed, from its end back to the last progress."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from nvtrader_rl_dagster.nemo_rl.diagnosis.lines import Line, line_of
from nvtrader_rl_dagster.nemo_rl.diagnosis.tracebacks import Traceback, read_traceback

_TRACEBACK = b"Traceback (most"
#: Whatever stood before one of these did not end the training.
_PROGRESS = (
    b"========================= Step ",
    b"Training Results:",
    b"Validation Results",
    b"Saving checkpoint for step ",
)
_NUMBER = re.compile(rb'\{\s*"n"\s*:\s*(\d+)')
_TRACEBACKS = 200
_LINES = 400
_BLOCK = 1 << 22


@dataclass
class Evidence:
    """What a log says after the last sign of progress: the first line with each marker, the tracebacks, in order."""

    printed: list[Line] = field(default_factory=list)
    tracebacks: list[Traceback] = field(default_factory=list)


def scan(log: Path, first_line: int, markers: Iterable[str]) -> Evidence:
    """Read a `log.jsonl` from line number `first_line` on, or raw output. Empty when there is no log."""
    try:
        file = log.open("rb")
    except FileNotFoundError:
        return Evidence()
    with file:
        if not file.seek(0, 2):
            return Evidence()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Scan(data, first_line).evidence(markers)


class _Scan:
    def __init__(self, data: mmap.mmap, first_line: int) -> None:
        self._data = data
        self._first = first_line
        self._json = _NUMBER.match(data) is not None

    def evidence(self, markers: Iterable[str]) -> Evidence:
        start = self._start()
        headers, found = self._places(start, [marker.encode() for marker in markers])
        evidence = Evidence([line for at in found if (line := self._line(self._line_start(at)))])
        seen: set[int] = set()
        # The first ones hold the reason, the last one what ended the driver.
        for place in headers if len(headers) <= _TRACEBACKS else headers[: _TRACEBACKS - 20] + headers[-20:]:
            at = self._line_start(place)
            line = self._line(at)
            if line is None or line.n in seen:
                continue
            traceback = read_traceback(self._lines(at), self._before(at, line.source))
            seen |= traceback.headers
            if traceback.raised:
                evidence.tracebacks.append(traceback)
        return evidence

    def _places(self, start: int, markers: list[bytes]) -> tuple[list[int], list[int]]:
        """Offsets of the headers of tracebacks, and of the first of each marker."""
        anchors = re.compile(b"|".join(map(re.escape, (_TRACEBACK, *_PROGRESS, *markers))))
        headers: list[int] = []
        first: dict[bytes, int] = {}
        end = len(self._data)
        while end > start:
            begin = max(start, self._line_start(max(0, end - _BLOCK)))
            for match in reversed(list(anchors.finditer(self._data, begin, end))):
                text = match.group()
                if text in _PROGRESS:
                    return headers[::-1], sorted(first.values())
                if text == _TRACEBACK:
                    headers.append(match.start())
                else:
                    first[text] = match.start()
            end = begin
        return headers[::-1], sorted(first.values())

    def _start(self) -> int:
        """Offset of the line with the first number; numbers only grow."""
        if self._first <= 1 or not self._json:
            return 0
        low, high = 0, len(self._data)
        while low < high:
            middle = self._line_start((low + high) // 2)
            if self._number(middle) < self._first:
                low = self._next(middle)
            else:
                high = middle
        return low

    def _number(self, at: int) -> int:
        match = _NUMBER.match(self._data, at)
        return int(match.group(1)) if match else 0

    def _line_start(self, at: int) -> int:
        return self._data.rfind(b"\n", 0, at) + 1

    def _next(self, at: int) -> int:
        end = self._data.find(b"\n", at)
        return len(self._data) if end < 0 else end + 1

    def _line(self, at: int) -> Line | None:
        raw = self._data[at : self._next(at)]
        if not self._json:
            return line_of(at, raw.decode("utf-8", errors="replace"))
        try:
            row = orjson.loads(raw)
            return line_of(row["n"], row["text"])
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return None  # cut off, or changed by hand

    def _lines(self, at: int) -> Iterator[Line]:
        for _ in range(_LINES):
            if at >= len(self._data):
                return
            if line := self._line(at):
                yield line
            at = self._next(at)

    def _before(self, at: int, source: str) -> str:
        """The text above, of the same source."""
        for _ in range(10):
            if at == 0:
                break
            at = self._line_start(at - 1)
            line = self._line(at)
            if line and line.source == source:
                return line.text
        return ""
