"""Reading feedback files row by row; memory does not grow with the file."""

from __future__ import annotations

from collections.abc import Iterator

from nvtrader_rl_dagster.feedback.readers.csv_rows import read_csv
from nvtrader_rl_dagster.feedback.readers.files import FeedbackFile, FeedbackFileError, iter_files, open_bytes
from nvtrader_rl_dagster.feedback.readers.json_rows import read_json_lines, read_json_values
from nvtrader_rl_dagster.feedback.readers.parquet_rows import read_parquet
from nvtrader_rl_dagster.feedback.readers.rows import Row
from nvtrader_rl_dagster.feedback.reasons import RowRejected

_BOM = b"\xef\xbb\xbf"
_PEEK = 1 << 16


def read_rows(file: FeedbackFile) -> Iterator[Row]:
    """Every row of the file, or the reason why it is refused; damage to the file itself is one row at the end."""
    try:
        source = open_bytes(file.path)
    except OSError as error:
        yield Row(0, "", None, RowRejected("unreadable_file", None, str(error)), partial=True)
        return
    last_line = 0
    with source:
        if file.kind == "parquet":
            rows = read_parquet(file.path, source)
        elif file.kind == "csv":
            rows = read_csv(source)
        elif file.kind == "json" or _starts_with_bracket(source.peek(_PEEK)):
            rows = read_json_values(source)
        else:
            rows = read_json_lines(source)
        for row in rows:
            last_line = row.line
            # What damaged compression cut off is reported once, below.
            if not (source.damage and row.partial):
                yield row
        if source.damage:
            reason = "truncated_gzip" if source.gzipped else "unreadable_file"
            yield Row(last_line, "", None, RowRejected(reason, None, source.damage), partial=True)


def _starts_with_bracket(start: bytes) -> bool:
    return start.removeprefix(_BOM).lstrip()[:1] == b"["


__all__ = ["FeedbackFile", "FeedbackFileError", "Row", "iter_files", "read_rows"]
