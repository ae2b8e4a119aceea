"""Judging processes that somebody else started, on real ones."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil

from nvtrader_rl_dagster.nemo_rl.process_end import is_child_of, listens, why_gone


def test_a_process_that_runs_is_not_gone() -> None:
    assert why_gone(os.getpid(), time.time()) is None


def test_a_later_process_with_the_same_pid_is_another_one() -> None:
    before = psutil.Process().create_time() - 10
    said = why_gone(os.getpid(), before)
    assert said is not None
    assert said.startswith(f"pid {os.getpid()} belongs to a later process")


def test_an_ended_process_is_gone_before_and_after_it_is_collected() -> None:
    child = subprocess.Popen(["true"])
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert why_gone(child.pid, time.time()) == f"process {child.pid} has ended and waits to be collected"
    child.wait()
    assert why_gone(child.pid, time.time()) == f"there is no process {child.pid}"


def test_a_restart_of_the_machine_is_named() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert "; the machine was restarted at 2" in (why_gone(child.pid, psutil.boot_time() - 60) or "")


def test_the_parent_is_known_by_its_words() -> None:
    assert is_child_of(subprocess.Popen(["true"]).pid, sys.orig_argv[:1])
    assert not is_child_of(os.getpid(), ("no", "such", "words"))
    assert not is_child_of(2**22 + 1, ())


def test_a_server_listens_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as local, socket.socket() as remote:
        local.bind(str(path))
        remote.bind(("127.0.0.1", 0))
        address = remote.getsockname()
        assert not listens(str(path))
        assert not listens(address)
        local.listen()
        remote.listen()
        assert listens(str(path))
        assert listens(address)
    assert not listens(str(path))
    assert not listens(address)
    assert not listens(str(tmp_path / "never"))
