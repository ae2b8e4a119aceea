"""One whole loop, run once; the tests read it or work on copies of its state folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from tests.loop import clear_preferences, import_into, run_job


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dg.ExecuteInProcessResult]]:
    """State folder and result of a loop that promoted a champion."""
    root = tmp_path_factory.mktemp("loop") / "home"
    with dg.DagsterInstance.ephemeral() as instance:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NVTRADER_RL_HOME", str(root))
            import_into(root, clear_preferences(root.parent / "feedback.jsonl"))
            result = run_job(instance)
        yield root, result


@pytest.fixture
def copied(finished: tuple[Path, dg.ExecuteInProcessResult], home: Path) -> Path:
    """A copy of its state folder, to change."""
    shutil.copytree(finished[0], home)
    return home
