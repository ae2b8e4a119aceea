"""Rows of CSV, Parquet, Arrow and text files, with the value types that NeMo-RL's loader gives them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.nemo_rl.preflight.json_rows import BrokenRow, RawRow

#: What pandas, which reads CSV there, takes for an empty cell (its documented defaults).
_NULL = frozenset(
    (
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
        *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
    )
)
_BOOLEANS = frozenset({"True", "TRUE", "true", "False", "FALSE", "false"})


def table_rows(file: Path, kind: str) -> Iterator[RawRow | BrokenRow]:
    """Rows with their numbers from 1; a CSV row's number leaves the header out. kind: the ending of such files."""
    if kind == ".csv":
        yield from _csv(file)
    elif kind == ".txt":
        with file.open(encoding="utf-8", newline="") as stream:
            for number, line in enumerate(stream, 1):
                yield RawRow(number, {"text": line.rstrip("\r\n")})
    else:
        for number, row in enumerate(_columns(file, kind), 1):
            yield RawRow(number, row)


def _csv(file: Path) -> Iterator[RawRow | BrokenRow]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            types = _csv_types(csv.DictReader(stream))
        with file.open(encoding="utf-8-sig", newline="") as stream:
            for number, row in enumerate(csv.DictReader(stream), 1):
                if None in row or None in row.values():
                    yield BrokenRow(number, "broken_csv", "it has more or fewer cells than the header")
                else:
                    yield RawRow(number, {k: None if v in _NULL else types[k](v) for k, v in row.items()})
    except (UnicodeDecodeError, csv.Error) as error:
        yield BrokenRow(0, "broken_csv", str(error))


def _csv_types(reader: csv.DictReader[str]) -> dict[str, Any]:
    """A column of numbers becomes numbers, one of truth values booleans, everything else stays text."""
    numbers = set(reader.fieldnames or ())
    booleans = set(numbers)
    filled: set[str] = set()
    for row in reader:
        for name in list(numbers | booleans):
            cell = row.get(name)
            if cell is None or cell in _NULL:
                continue
            filled.add(name)
            if name in numbers and not _is_number(cell):
                numbers.discard(name)
            if name in booleans and cell not in _BOOLEANS:
                booleans.discard(name)
    types: dict[str, Any] = dict.fromkeys(reader.fieldnames or (), str)
    types.update(dict.fromkeys(numbers & filled, float))
    types.update(dict.fromkeys(booleans & filled, bool))
    return types


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _columns(file: Path, kind: str) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.ipc
    import pyarrow.parquet

    if kind == ".parquet":
        for batch in pa.parquet.ParquetFile(file).iter_batches(1024):
            yield from batch.to_pylist()
        return
    with pa.memory_map(str(file)) as source:
        try:
            reader = pa.ipc.open_stream(source)
        except pa.ArrowInvalid:
            reader = pa.ipc.open_file(source)
            for index in range(reader.num_record_batches):
                yield from reader.get_batch(index).to_pylist()
            return
        for batch in reader:
            yield from batch.to_pylist()
