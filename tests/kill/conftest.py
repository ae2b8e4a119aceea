"""Fixtures of the kill tests: one loop for many kills, and a file with what was measured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kill.harness import Harness
from tests.kill.loop_under_test import LoopUnderTest
from tests.kill.record import table

#: Where the JSON lines of a whole matrix go; each line is there as soon as its kill is over.
REPORT_VARIABLE = "NVTRADER_RL_KILL_REPORT"
_REPORT = pytest.StashKey[Path]()


@pytest.fixture(scope="session")
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    named = os.environ.get(REPORT_VARIABLE)
    file = Path(named) if named else tmp_path_factory.mktemp("kills") / "kills.jsonl"
    file.unlink(missing_ok=True)
    request.config.stash[_REPORT] = file
    return file


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """A running loop with feedback and a champion; it survives most kills."""
    loop = LoopUnderTest(tmp_path_factory.mktemp("kill"))
    harness = Harness(loop)
    try:
        harness.prepare()
        yield harness
    finally:
        loop.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    file = config.stash.get(_REPORT, None)
    if file and file.exists():
        terminalreporter.section(f"kills ({file})")
        for line in table(file):
            terminalreporter.write_line(line)
