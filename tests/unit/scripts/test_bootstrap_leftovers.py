"""What failed starts leave behind: removed when nobody uses it, kept when somebody does. Processes are never ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from script_host import Host

PACKAGES = ("torch", "ray", "transformers")


@contextmanager
def a_process_with(text: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the text on its command line."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()", text], stdin=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def old(path: Path) -> Path:
    """As if nothing happened there for an hour."""
    os.utime(path, (time.time() - 3600,) * 2)
    return path


# workers' environments


def test_an_empty_environment_is_removed_and_a_good_one_kept(host: Host) -> None:
    venvs = host.source / "venvs"
    host.environment_of(venvs / "good worker", *PACKAGES)
    host.environment_of(venvs / "half worker", "torch")
    (venvs / "empty worker").mkdir()
    output = host.bootstrap("--check", "--only", "venvs", code=1)
    assert "empty worker has no interpreter" in output and "half worker missing ray, transformers" in output
    assert "ok       venvs: 1 good" in host.bootstrap("--only", "venvs")
    assert [folder.name for folder in venvs.iterdir()] == ["good worker"]


def test_an_environment_whose_builder_died_is_removed(host: Host) -> None:
    folder = host.environment_of(host.source / "venvs/worker", *PACKAGES).parents[1]
    (folder / "STARTED_ENV_BUILDER").touch()
    assert "worker was not finished" in host.bootstrap("--only", "venvs")
    assert not folder.exists()


def test_an_environment_that_is_being_built_is_kept(host: Host) -> None:
    folder = host.source / "venvs/worker"
    folder.mkdir(parents=True)
    with a_process_with(f"uv sync {folder}") as builder:
        assert f"worker is in use by process {builder.pid} and stays" in host.bootstrap("--only", "venvs")
        assert folder.exists()
    host.bootstrap("--only", "venvs")
    assert not folder.exists()


def test_a_link_to_nowhere_is_removed_and_what_a_good_link_names_is_kept(host: Host) -> None:
    venvs = host.source / "venvs"
    shared = host.environment_of(host.root / "shared env", *PACKAGES).parents[1]
    broken = host.environment_of(host.root / "broken env").parents[1]
    venvs.mkdir(parents=True)
    for name, target in (("shared", shared), ("broken", broken), ("gone", host.root / "nowhere")):
        (venvs / name).symlink_to(target)
    host.bootstrap("--only", "venvs")
    assert [link.name for link in venvs.iterdir()] == ["shared"]
    assert shared.exists() and (broken / "bin/python").exists()


def test_environments_are_looked_for_where_nemo_rl_puts_them(host: Host) -> None:
    venvs = host.root / "other venvs"
    (venvs / "worker").mkdir(parents=True)
    host.bootstrap("--only", "venvs", NEMO_RL_VENV_DIR=str(venvs))
    assert not (venvs / "worker").exists()


# Ray


@pytest.fixture
def ray(host: Host) -> Path:
    folder = host.root / "ray tmp" / "ray"
    folder.mkdir(parents=True)
    host.environment["RAY_TMPDIR"] = str(folder.parent)
    return folder


def test_a_session_that_nobody_uses_is_removed_and_one_in_use_kept(host: Host, ray: Path) -> None:
    dead, living = (old(ray / name) for name in make(ray, "session_2026-01-01_1", "session_2026-01-01_2"))
    with a_process_with(f"--session-name={living.name}") as raylet:
        assert "2 left over" not in host.bootstrap("--only", "ray")
        assert not dead.exists() and living.exists()
        assert raylet.poll() is None
    host.bootstrap("--only", "ray")
    assert not living.exists()


def test_a_session_that_may_be_starting_is_kept(host: Host, ray: Path) -> None:
    (young,) = make(ray, "session_2026-01-01_3")
    assert "0 left over" in host.bootstrap("--only", "ray")
    assert (ray / young).exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of somebody else's")
def test_a_session_of_somebody_else_is_kept(host: Host, ray: Path) -> None:
    (name,) = make(ray, "session_2026-01-01_4")
    os.chown(old(ray / name), 4242, 4242)
    host.bootstrap("--only", "ray")
    assert (ray / name).exists()


def test_the_address_of_a_cluster_that_answers_is_kept_and_of_a_dead_one_removed(host: Host, ray: Path) -> None:
    pointer = ray / "ray_current_cluster"
    with socket.create_server(("127.0.0.1", 0)) as server:
        pointer.write_text(f"127.0.0.1:{server.getsockname()[1]}")
        host.bootstrap("--only", "ray")
        assert pointer.exists()
    assert "doing    ray: 1 left over" in host.bootstrap("--only", "ray")
    assert not pointer.exists()


def test_without_a_ray_folder_there_is_nothing_to_do(host: Host) -> None:
    assert "nothing  ray" in host.bootstrap("--only", "ray", RAY_TMPDIR=str(host.root / "none"))


def make(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name / "logs").mkdir(parents=True)
    return list(names)
