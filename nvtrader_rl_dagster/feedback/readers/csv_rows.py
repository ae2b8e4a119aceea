"""CSV files with a header row."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from io import BufferedReader
from typing import Any

from nvtrader_rl_dagster.feedback.readers.json_text import JsonText
from nvtrader_rl_dagster.feedback.readers.rows import ROW_LIMIT, Row
from nvtrader_rl_dagster.feedback.reasons import RowRejected

# CSV has no numbers; these columns of the known formats hold one.
_WHOLE_NUMBER_COLUMN = re.compile(r"overall_preference|annotator\d+")
_MESSAGE_KEYS = frozenset({"role", "from", "rank"})


def read_csv(source: BufferedReader) -> Iterator[Row]:
    """One row per record as {column: cell}; a cell that holds a JSON list of messages or ranks is decoded."""
    csv.field_size_limit(ROW_LIMIT)
    # Bytes that are not UTF-8 come through as lone surrogates, so that they cost one row and not the file.
    text = io.TextIOWrapper(source, encoding="utf-8-sig", errors="surrogateescape", newline="")
    records = csv.reader(text, strict=True)
    decoder = JsonText()
    header: list[str] | None = None
    while True:
        line = records.line_num + 1
        try:
            cells = next(records)
        except StopIteration:
            break
        except csv.Error as error:
            if header is None:
                yield Row(line, "", None, RowRejected("bad_csv", None, f"the header row: {error}"), partial=True)
                break
            yield Row(line, "", None, RowRejected("bad_csv", None, str(error)))
            continue
        if not cells:
            continue
        raw = ",".join(cells)
        problem = _bad_bytes(header or cells, cells)
        if header is None:
            header = [name.strip() for name in cells]
            if problem is None and len(set(header)) < len(header):
                problem = RowRejected("duplicate_key", None, "the header names a column twice")
            if problem is not None:
                yield Row(line, raw, None, problem, partial=True)
                break
        elif problem is not None:
            yield Row(line, raw, None, problem)
        elif len(cells) != len(header):
            detail = f"{len(cells)} cells under {len(header)} columns"
            yield Row(line, raw, None, RowRejected("bad_csv", None, detail))
        else:
            try:
                value = {name: _value(name, cell, decoder) for name, cell in zip(header, cells, strict=True)}
                yield Row(line, raw, value)
            except RowRejected as refused:
                yield Row(line, raw, None, refused)
    text.detach()


def _value(name: str, cell: str, decoder: JsonText) -> Any:
    if _WHOLE_NUMBER_COLUMN.fullmatch(name) and re.fullmatch(r"-?\d{1,3}", cell, re.ASCII):
        return int(cell)
    if cell.lstrip()[:1] in ("[", "{"):
        stripped = cell.strip()
        try:
            value, end, problem = decoder.decode(stripped)
        except ValueError:
            return cell
        items = value if isinstance(value, list) else [value]
        is_messages = bool(items) and all(isinstance(i, dict) and _MESSAGE_KEYS & i.keys() for i in items)
        if end == len(stripped) and is_messages:
            if problem is not None:
                raise problem
            return value
    return cell


def _bad_bytes(header: list[str], cells: list[str]) -> RowRejected | None:
    for i, cell in enumerate(cells):
        if cell.isascii():
            continue
        try:
            cell.encode()
        except UnicodeEncodeError as error:
            name = header[i] if i < len(header) and header is not cells else f"column {i + 1}"
            offset = len(cell[: error.start].encode())
            return RowRejected("bad_utf8", name, f"at byte {offset} of the cell")
    return None
