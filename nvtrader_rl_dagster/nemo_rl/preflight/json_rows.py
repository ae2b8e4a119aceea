"""Rows of a JSON Lines file, or of a file with one JSON array, with the line of everything that is broken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

_BOM = b"\xef\xbb\xbf"
#: A file whose first line is no JSON may be one object over many lines; a larger one is not read for that.
_ONE_OBJECT_BYTES = 64 << 20


@dataclass(frozen=True)
class RawRow:
    """One row. line: of the file, or the row's number in an array. size: bytes of its JSON text, 0 when unknown."""

    line: int
    value: Any
    size: int = 0
    text: bytes = b""


@dataclass(frozen=True)
class BrokenRow:
    """A line that cannot be read. line: 0 for what is about the whole file."""

    line: int
    code: str
    message: str


def json_rows(file: Path, strict: bool = False) -> Iterator[RawRow | BrokenRow]:
    """Rows in file order; blank lines are none, and a byte order mark is no part of the first.

    strict: an array only in a `.json` file, one strict JSON value on each line, as the embedded trainer reads.
    """
    with file.open("rb") as stream:
        start = stream.read(256)
        if start.removeprefix(_BOM).lstrip().startswith(b"[") and not (strict and file.suffix != ".json"):
            yield from _array(start + stream.read())
            return
        stream.seek(0)
        number = 0
        for line in stream:
            number += 1
            if number == 1:
                line = line.removeprefix(_BOM)
            if not line.strip():
                continue
            try:
                yield RawRow(number, orjson.loads(line), len(line), line)
                continue
            except orjson.JSONDecodeError as error:
                problem = error
            found = list(_other_json(number, line, problem, strict))
            if (
                number == 1
                and not strict
                and isinstance(found[0], BrokenRow)
                and (whole := _one_object(file)) is not None
            ):
                yield whole
                return
            yield from found


def repeated_key(text: bytes) -> str | None:
    """A key that stands twice in one object of this JSON text."""
    twice: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for key, value in items:
            if key in seen:
                twice.append(key)
            seen[key] = value
        return seen

    json.loads(text, object_pairs_hook=pairs)
    return twice[0] if twice else None


def _array(content: bytes) -> Iterator[RawRow | BrokenRow]:
    if content.startswith(_BOM):
        yield BrokenRow(0, "byte_order_mark", "a JSON array after a byte order mark")
        content = content.removeprefix(_BOM)
    elif not content.startswith(b"["):
        yield BrokenRow(0, "leading_blank", "a JSON array after blanks")
    try:
        rows = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        yield BrokenRow(error.lineno, "broken_json", f"not valid JSON: {error.msg}")
        return
    for number, row in enumerate(rows, 1):
        yield RawRow(number, row)


def _other_json(
    number: int, line: bytes, problem: orjson.JSONDecodeError, strict: bool
) -> Iterator[RawRow | BrokenRow]:
    """What Arrow accepts beyond strict JSON: NaN, and several objects on one line. Else why it is broken."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        yield BrokenRow(number, "bad_utf8", f"byte {error.start} of the line is not UTF-8")
        return
    rows, position, decoder = [], 0, json.JSONDecoder()
    try:
        while position < len(text.rstrip()):
            position += len(text[position:]) - len(text[position:].lstrip())
            value, position = decoder.raw_decode(text, position)
            rows.append(value)
        json.dumps(rows, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        yield BrokenRow(number, "lone_surrogate", "half of a surrogate pair (a cut emoji) stands alone")
    except (ValueError, RecursionError):
        yield BrokenRow(number, "broken_json", f"not valid JSON: {problem.msg} (column {problem.colno})")
    else:
        if strict:
            yield BrokenRow(number, "broken_json", f"not valid JSON: {problem.msg} (column {problem.colno})")
            return
        for value in rows:
            yield RawRow(number, value, len(line))


def _one_object(file: Path) -> RawRow | None:
    if file.stat().st_size > _ONE_OBJECT_BYTES:
        return None
    content = file.read_bytes().removeprefix(_BOM)
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    return RawRow(1, value, len(content), content) if isinstance(value, dict) else None
