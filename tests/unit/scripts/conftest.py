"""The machine that the scripts run on."""

from __future__ import annotations

from pathlib import Path

import pytest
from script_host import Host, make_host, make_upstream


@pytest.fixture(scope="session")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The small repository that stands for NeMo-RL's, and its pinned commit."""
    return make_upstream(tmp_path_factory.mktemp("upstream"))


@pytest.fixture
def host(tmp_path: Path, upstream: tuple[Path, str]) -> Host:
    """A bare machine: git, conda, no GPU. Every path on it has a space."""
    return make_host(tmp_path / "a host", *upstream)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, upstream: tuple[Path, str]) -> tuple[Host, str]:
    """A GB10 on which the bootstrap ran, and what it said. Tests leave it as it is."""
    host = make_host(tmp_path_factory.mktemp("finished") / "a host", *upstream)
    host.say("capability", "12.1\n")
    return host, host.bootstrap()


@pytest.fixture
def gb10(host: Host) -> Host:
    """The same with a GB10."""
    host.say("capability", "12.1\n")
    return host
