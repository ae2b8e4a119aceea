"""The census itself: a kill test that cannot see a survivor would prove nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kill.census import CENSUS_VARIABLE, Census
from tests.kill.loop_under_test import FAKES, wait_until

_SCRIPT = FAKES / "misbehaving_tree" / "examples" / "run_dpo.py"
_FAMILY = "import runpy, sys; runpy.run_path(sys.argv[1])['start_family']()"


@pytest.fixture
def census(tmp_path: Path) -> Census:
    return Census(tmp_path / "census.jsonl")


def start(census: Census, code: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, CENSUS_VARIABLE: str(census.file), "NVTRADER_LAUNCH_ID": "feed"}
    return subprocess.Popen([sys.executable, "-c", code, str(_SCRIPT)], env=environment)


def test_every_member_of_the_family_is_seen_ignores_polite_signals_and_is_gone_when_killed(census: Census) -> None:
    assert start(census, _FAMILY).wait(20) == 0
    try:
        wait_until(lambda: len(census.lines("started")) == 3, 20, census.lines)
        family = {line["role"]: line["pid"] for line in census.lines("started")}
        assert set(family) == {"child", "grandchild", "daemon"}
        assert len({os.getsid(pid) for pid in family.values()}) == 3, "they are in one session"
        for pid in family.values():
            os.kill(pid, signal.SIGINT)
            os.kill(pid, signal.SIGTERM)
        assert set(census.of_launches({"feed"})) == set(family.values())
        assert census.of_launches({"another"}) == {}
    finally:
        killed = list(census.kill())
    assert set(killed) == set(family.values())
    wait_until(lambda: not census.alive(), 5, census.alive)


def test_a_process_that_did_not_write_itself_down_is_known_by_its_environment(census: Census) -> None:
    sleeper = start(census, "import time; time.sleep(60)")
    try:
        wait_until(lambda: set(census.alive()) == {sleeper.pid}, 5, census.alive)
    finally:
        sleeper.kill()
    # Not waited for: a zombie does not count.
    wait_until(lambda: not census.alive(), 5, census.alive)
    sleeper.wait()


def test_a_later_process_with_the_same_pid_is_not_taken_for_the_dead_one(census: Census) -> None:
    line = {"ts": 0, "what": "started", "role": "trainer", "pid": os.getpid(), "started": 1, "launch": "feed"}
    census.file.write_text(json.dumps(line) + "\n")
    assert census.alive() == {}
