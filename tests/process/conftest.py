"""A workplace per test; whatever a broken test leaves running is ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nvtrader_rl_dagster.nemo_rl.processes import launches
from tests.process.launching import Workplace


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    workplace = Workplace(tmp_path)
    yield workplace
    for processes in launches(workplace.lease).values():
        for process in processes:
            process.kill()
