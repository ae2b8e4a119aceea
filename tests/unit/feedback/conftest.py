"""A store in a temporary folder, and imports of small files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from feedback_rows import lines

from nvtrader_rl_dagster.feedback.import_report import ImportReport
from nvtrader_rl_dagster.feedback.importers import ImportOptions
from nvtrader_rl_dagster.feedback.importing import import_paths
from nvtrader_rl_dagster.feedback.store import FeedbackStore

Importing = Callable[..., ImportReport]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FeedbackStore]:
    opened = FeedbackStore(f"sqlite:///{tmp_path / 'store' / 'feedback.db'}")
    yield opened
    opened.close()


@pytest.fixture
def import_bytes(store: FeedbackStore, tmp_path: Path) -> Importing:
    """`import_bytes(data, name="rows.jsonl", format="auto", **options)`: write the file and import it."""

    def run(data: bytes, name: str = "rows.jsonl", *, format: str = "auto", **options: Any) -> ImportReport:
        path = tmp_path / name
        path.write_bytes(data)
        return import_paths(store, [path], format=format, options=ImportOptions(**options))

    return run


@pytest.fixture
def import_rows(import_bytes: Importing) -> Importing:
    """`import_rows(row, row, ...)`: the same for rows given as objects."""

    def run(*rows: Any, **options: Any) -> ImportReport:
        return import_bytes(lines(*rows), **options)

    return run
