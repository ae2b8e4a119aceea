"""Writes `log.jsonl` and `metrics.jsonl` as the trainer prints, complete and in order, also across a full disk."""

from __future__ import annotations

import os
import time
from collections import deque
from pathlib import Path

import orjson

from nvtrader_rl_dagster.nemo_rl.log_parser import LogParser, Metric, clean
from nvtrader_rl_dagster.nemo_rl.metrics import metric_line
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, timestamp

_TAIL_LINES = 40
_TAIL_CHARACTERS = 2000
#: Lines kept in memory while the disk is full.
_BACKLOG = 10_000
_BLOCK = 1 << 16


class LogWriter:
    """The log of one launch; an older launch's lines in the same folder are continued."""

    def __init__(self, directory: RunDirectory) -> None:
        self.parser = LogParser()
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self.progressed = time.monotonic()
        self.lost_lines = 0
        self._log = _LineFile(directory.log)
        self._metrics = _LineFile(directory.metrics)
        self.lines = _last_number(self._log)
        self.first_line = self.lines + 1

    def line(self, raw: bytes) -> None:
        """Take one line as the trainer wrote it, carriage returns and escape codes included."""
        text = raw.decode("utf-8", errors="replace").removesuffix("\n")
        self.lines += 1
        self.lost_lines += self._log.append(orjson.dumps({"n": self.lines, "ts": timestamp(), "text": text}) + b"\n")
        self.tail.append(clean(text)[:_TAIL_CHARACTERS])
        signs = self.parser.signs
        found = self.parser.feed(text) if raw.endswith(b"\n") else self.parser.feed_last(text)
        self._take(found)
        # Before the first step any output is a sign of life: a model loads, an environment is built.
        if found or self.parser.signs != signs or not self.parser.step:
            self.progressed = time.monotonic()

    def close(self) -> None:
        """The block that the end of the output cut off, and what a full disk held back."""
        self._take(self.parser.close())
        for file in (self._log, self._metrics):
            if file.flush():
                self.lost_lines += len(file.backlog)
            file.close()

    def _take(self, found: list[Metric]) -> None:
        for metric in found:
            self._metrics.append(metric_line(metric))


class _LineFile:
    """Appends whole lines. A line that the disk refuses waits for the next one; none is ever half written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backlog: deque[bytes] = deque()
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self.size = self._whole_lines()
        os.ftruncate(self.descriptor, self.size)

    def append(self, line: bytes) -> int:
        """Write the line; returns how many older ones had to be given up."""
        self.backlog.append(line)
        lost = 0
        if self.flush() and len(self.backlog) > _BACKLOG:
            self.backlog.popleft()
            lost = 1
        return lost

    def flush(self) -> bool:
        """Write what waits; True when the disk still refuses."""
        while self.backlog:
            line = self.backlog[0]
            try:
                written = os.pwrite(self.descriptor, line, self.size)
            except OSError:
                written = 0
            if written < len(line):
                os.ftruncate(self.descriptor, self.size)
                return True
            self.size += written
            self.backlog.popleft()
        return False

    def close(self) -> None:
        os.close(self.descriptor)

    def last_line(self) -> bytes:
        """The last whole line, empty when there is none."""
        block = _BLOCK
        while True:
            start = max(0, self.size - block)
            data = os.pread(self.descriptor, self.size - start, start).removesuffix(b"\n")
            _, newline, line = data.rpartition(b"\n")
            if newline or start == 0:
                return line
            block *= 4

    def _whole_lines(self) -> int:
        """Bytes up to the last newline: a killed writer may have left half a line."""
        size = os.fstat(self.descriptor).st_size
        end = size
        while end:
            start = max(0, end - _BLOCK)
            newline = os.pread(self.descriptor, end - start, start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
        return 0


def _last_number(log: _LineFile) -> int:
    line = log.last_line()
    return int(orjson.loads(line)["n"]) if line else 0
