"""JSON files: one object a line, and streams of values (an array, one object, or objects one after the other)."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from io import BufferedReader

from nvtrader_rl_dagster.feedback.readers.json_text import JsonText, ends_early
from nvtrader_rl_dagster.feedback.readers.rows import ROW_LIMIT, Row
from nvtrader_rl_dagster.feedback.reasons import RowRejected

_BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 18
_BETWEEN = re.compile(r"[ \t\r\n]*")
_BETWEEN_ITEMS = re.compile(r"[ \t\r\n,]*")


def read_json_lines(source: BufferedReader) -> Iterator[Row]:
    """One row a line. Blank lines are skipped but counted; a last line that stops early is `truncated_json`."""
    decoder = JsonText()
    held: Row | None = None  # a line that stops early: only the last one is truncated
    for number, line in _lines(source):
        if line is None:
            row = Row(number, b"", None, _too_long())
        elif not line.strip():
            continue
        else:
            row = _line_row(decoder, number, line)
        if held is not None:
            yield held._replace(problem=RowRejected("bad_json", None, _detail(held)), partial=False)
            held = None
        if row.partial:
            held = row
        else:
            yield row
    if held is not None:
        yield held


def _lines(source: BufferedReader) -> Iterator[tuple[int, bytes | None]]:
    """(number, line); None for a line longer than the limit."""
    number = 0
    while line := source.readline(ROW_LIMIT):
        number += 1
        if number == 1:
            line = line.removeprefix(_BOM)
        if len(line) < ROW_LIMIT or line.endswith(b"\n"):
            yield number, line
            continue
        while line and not line.endswith(b"\n"):
            line = source.readline(ROW_LIMIT)
        yield number, None


def _line_row(decoder: JsonText, number: int, line: bytes) -> Row:
    """The row of one line; `partial` marks a line that stops early."""
    try:
        text = line.decode().strip(" \t\r\n")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            return Row(number, line, None, RowRejected("truncated_json", None, "stops inside a character"), True)
        return Row(number, line, None, RowRejected("bad_utf8", None, f"at byte {error.start} of the line"))
    try:
        value, end, problem = decoder.decode(text)
        if end != len(text):
            problem = RowRejected("bad_json", None, f"more text after the value, at character {end}")
    except json.JSONDecodeError as error:
        early = ends_early(error, len(text))
        reason = "truncated_json" if early else "bad_json"
        return Row(number, line, None, RowRejected(reason, None, f"{error.msg}, at character {error.pos}"), early)
    except RowRejected as error:
        return Row(number, line, None, error)
    return Row(number, line, value, problem)


def _detail(row: Row) -> str:
    return row.problem.detail if row.problem else ""


def read_json_values(source: BufferedReader) -> Iterator[Row]:
    """The items of an array, one object, or objects after each other over any number of lines.

    After a broken value reading goes on at the next line that starts an object with the same indent; where there
    is none the rest is lost and the row says so with `partial`.
    """
    window = _Window(source)
    decoder = JsonText()
    in_array = False
    while window.skip(_BETWEEN_ITEMS if in_array else _BETWEEN):
        mark = window.text[window.at]
        if (mark == "[" and not in_array) or (mark == "]" and in_array):
            in_array = not in_array
            window.move_to(window.at + 1)
            continue
        line, raw = window.line, ""
        try:
            while True:
                try:
                    value, end, problem = decoder.decode(window.text, window.at)
                except json.JSONDecodeError as error:
                    if not ends_early(error, len(window.text)) or not window.more():
                        raise
                    continue
                if end < len(window.text) or not window.more():
                    break
            raw = window.text[window.at : end]
            yield Row(line, raw, value, problem or _bad_bytes(raw))
            window.move_to(end)
            continue
        except json.JSONDecodeError as error:
            early = window.ended and ends_early(error, len(window.text))
            found = RowRejected("truncated_json" if early else "bad_json", None, error.msg)
        except RowRejected as error:
            found = error
        raw = window.text[window.at : window.at + 1000]
        resumed = window.resume()
        yield Row(line, raw, None, found, partial=not resumed)
        if not resumed:
            return
    if in_array:
        yield Row(window.line, "", None, RowRejected("truncated_json", None, "the array is not closed"), True)


def _too_long() -> RowRejected:
    return RowRejected("too_long", None, f"one row of more than {ROW_LIMIT // 2**20} MiB")


def _bad_bytes(raw: str) -> RowRejected | None:
    """Bytes that were not UTF-8 have become lone surrogates in the text; escapes in the JSON have not."""
    if raw.isascii():
        return None
    try:
        raw.encode()
    except UnicodeEncodeError as error:
        offset = len(raw[: error.start].encode())
        return RowRejected("bad_utf8", None, f"at byte {offset} of the row")
    return None


class _Window:
    """A sliding window over the decoded text, with the line number of its position."""

    def __init__(self, source: BufferedReader) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self.text = ""
        self.at = 0
        self.line = 1
        self.ended = False
        self._indent: str | None = ""
        self.more()
        self.text = self.text.removeprefix("\ufeff")

    def more(self) -> bool:
        """Read on; False at the end of the file. The window doubles while one value does not fit."""
        if self.ended:
            return False
        rest = self.text[self.at :]
        if len(rest) > ROW_LIMIT:
            raise _too_long()
        data = self._source.read(max(_CHUNK, len(rest)))
        if not data:
            self.ended = True
            self.text += self._decoder.decode(b"", final=True)
            return False
        self.text, self.at = rest + self._decoder.decode(data), 0
        return True

    def move_to(self, place: int) -> None:
        newline = self.text.rfind("\n", self.at, place)
        if newline >= 0:
            self.line += self.text.count("\n", self.at, place)
            start = newline + 1
            self._indent = ""
        else:
            start = self.at
        gap = self.text[start:place]
        if self._indent is not None:
            self._indent = self._indent + gap if not gap.strip(" \t") else None
        self.at = place

    def skip(self, pattern: re.Pattern[str]) -> bool:
        """Move over what separates values; False when nothing follows."""
        while True:
            match = pattern.match(self.text, self.at)
            self.move_to(match.end() if match else self.at)
            if self.at < len(self.text):
                return True
            if not self.more():
                return False

    def resume(self) -> bool:
        """Move behind a broken value to the next line that starts like it; False when there is none."""
        if self._indent is None:
            return False
        start = f"\n{self._indent}{{"
        while True:
            place = self.text.find(start, self.at)
            if place >= 0:
                self.move_to(place + len(start) - 1)
                return True
            self.move_to(max(self.at, len(self.text) - len(start)))
            if not self.more():
                return False
