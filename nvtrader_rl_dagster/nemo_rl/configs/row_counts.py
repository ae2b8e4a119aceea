"""How many rows a data file has, without looking into them."""

from __future__ import annotations

import csv
from pathlib import Path

import orjson


def count_rows(file: Path) -> int:
    """Rows of a JSON-lines, JSON or CSV file; blank lines are none.

    Raises `ValueError` naming the file when it is missing, unreadable or of another kind.
    """
    try:
        if file.suffix == ".jsonl":
            with file.open("rb") as lines:
                return sum(1 for line in lines if line.strip())
        if file.suffix == ".json":
            rows = orjson.loads(file.read_bytes())
            return len(rows) if isinstance(rows, list) else 1
        if file.suffix == ".csv":
            with file.open(encoding="utf-8", newline="") as text:
                return sum(1 for _ in csv.DictReader(text))
    except (OSError, orjson.JSONDecodeError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{file}: its rows cannot be counted ({error}); check the file") from error
    raise ValueError(f"{file}: ends in none of .jsonl, .json, .csv; NeMo-RL would look for it on the hub")
