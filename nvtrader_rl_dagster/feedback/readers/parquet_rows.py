"""Parquet files, read in batches."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from nvtrader_rl_dagster.feedback.readers.files import ByteSource
from nvtrader_rl_dagster.feedback.readers.rows import Row
from nvtrader_rl_dagster.feedback.reasons import RowRejected

_BATCH_ROWS = 500


def read_parquet(path: Path, source: ByteSource) -> Iterator[Row]:
    """One row per record, `line` counting from 1. A file that is not Parquet is one `unreadable_file` row.

    `source` is the opened file; it is read only when it is gzipped, into a temporary file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    line = 0
    try:
        with tempfile.TemporaryFile() as seekable:
            if source.gzipped:
                shutil.copyfileobj(source, seekable)
            with pq.ParquetFile(seekable if source.gzipped else path) as parquet:
                for batch in parquet.iter_batches(batch_size=_BATCH_ROWS):
                    for value in batch.to_pylist():
                        line += 1
                        yield Row(line, value, value)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        yield Row(line, "", None, RowRejected("unreadable_file", None, str(error)[:300]), partial=True)
