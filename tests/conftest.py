"""Shared fixtures: a state folder per test, and the folder of real feedback where there is one."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parents[1]
_PROCESS_TESTS = ("tests/kill/", "tests/contract/", "tests/process/", "tests/unit/cli/test_doctor.py")
REAL_DATA = Path(os.environ.get("NVTRADER_RL_REAL_DATA") or REPO.parent / "shared" / "data")


def pytest_configure() -> None:
    """Children inherit ignored signals, and a background job of a shell ignores the interrupt that tests send."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n`, a file runs in one worker; whoever starts or looks for Ray daemons and supervisors, in the same.

    A scheduler of our own: with pytest 9.2 the groups of `--dist loadgroup` are lost (pytest-xdist 3.8).
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "processes" if file.startswith(_PROCESS_TESTS) else file

    return ByFile(config, log)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real feedback files. Tests that use it carry the marker `real_data`."""
    if not (REAL_DATA / "pandalm_testset_v1.json").exists():
        pytest.skip(f"no real feedback at {REAL_DATA}; set NVTRADER_RL_REAL_DATA")
    return REAL_DATA


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty state folder, the one that resources and the console script use."""
    root = tmp_path / "home"
    monkeypatch.setenv("NVTRADER_RL_HOME", str(root))
    monkeypatch.delenv("NVTRADER_RL_STORE", raising=False)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return root
