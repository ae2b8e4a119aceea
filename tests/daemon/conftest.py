"""A machine with an empty state folder, and one daemon on it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from daemon_loop import Box, Daemon

from nvtrader_rl_dagster.settings import RETRY_VARIABLE, THRESHOLD_VARIABLE


@pytest.fixture(scope="session", autouse=True)
def _migrations_are_read_once() -> Iterator[None]:
    """Each tick opens the instance anew, and would read all migrations of Dagster three times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", lru_cache(ScriptDirectory.from_config))
        yield


@pytest.fixture
def box(home: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    """The threshold is 50 pairs, and 10 after a failure."""
    for variable in (THRESHOLD_VARIABLE, RETRY_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    return Box(home)


@pytest.fixture
def daemon(box: Box) -> Iterator[Daemon]:
    """Both sensors have had their first tick: the failure sensor looks at later failures only."""
    with box.daemon() as started:
        started.tick()
        yield started
