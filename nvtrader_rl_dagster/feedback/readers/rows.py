"""One row out of a file: its place, its text, and its value or the reason why it is refused."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from nvtrader_rl_dagster.feedback.reasons import RowRejected

# A single row larger than this is refused without being held in memory as a whole.
ROW_LIMIT = 64 * 2**20


class Row(NamedTuple):
    """line: where the row starts, from 1. raw: its text or, in Parquet, its value. partial: the file ends here."""

    line: int
    raw: Any
    value: Any
    problem: RowRejected | None = None
    partial: bool = False


def excerpt(raw: Any, limit: int) -> str:
    """At most `limit` characters of a row's raw text; bytes that are not UTF-8 are shown as escapes."""
    if isinstance(raw, bytes):
        return raw[: 4 * limit].decode(errors="backslashreplace")[:limit]
    if isinstance(raw, str):
        return raw[:limit]
    try:
        return json.dumps(raw, ensure_ascii=False, default=str)[:limit]
    except (ValueError, RecursionError, TypeError):
        return repr(raw)[:limit]
