"""The deployment on a host: package, NeMo-RL, service, doctor."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from script_host import Host


@pytest.fixture
def server(gb10: Host) -> Host:
    """A GB10 with make and a systemd user session. Its bootstrap is a stand-in that notes its options."""
    gb10.put("make", "systemctl")
    gb10.say("user_session", "")
    bootstrap = gb10.repo / "scripts/bootstrap_nemo_rl.sh"
    bootstrap.write_text('#!/usr/bin/env bash\nsource "$FAKES/_record"\n')
    return gb10


def unit(host: Host) -> Path:
    return host.root / "people/.config/systemd/user/nvtrader-rl.service"


def test_a_host_is_deployed_and_a_second_time_only_the_server_is_started_anew(server: Host) -> None:
    (server.repo / "third_party/nemo-rl.env").write_text(
        'NVTRADER_NEMORL_PYTHON="/env/python"\nNVTRADER_NEMORL_SRC="/src"\n'
    )
    output = server.run("deploy.sh", "--with-megatron", "--uv")
    assert server.calls("bootstrap_nemo_rl.sh") == [["bootstrap_nemo_rl.sh", "--with-megatron", "--uv"]]
    assert output.rstrip().endswith("doctor: /env/python in /src")
    verbs = [call[2] for call in server.calls("systemctl", "--user")]
    assert verbs == ["show-environment", "daemon-reload", "enable", "restart"]
    before = server.contents()
    assert "is up to date" in server.run("deploy.sh", "--with-megatron", "--uv")
    assert server.contents() == before


def test_the_unit_is_one_that_systemd_accepts(server: Host) -> None:
    server.run("deploy.sh", "--host", "0.0.0.0", "--port", "8080", "--home", str(server.root / "50 % of $HOME"))
    text = unit(server).read_text()
    assert f'ExecStart="{server.repo}/.venv/bin/nvtrader-rl" up --host 0.0.0.0 --port 8080\n' in text
    assert "50 %% of $$HOME" in text
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not here to read the unit")
    done = subprocess.run(
        [analyze, "verify", "--user", "--man=no", unit(server)], capture_output=True, text=True, check=False
    )
    problems = [line for line in done.stderr.splitlines() if "nvtrader-rl.service" in line]
    assert problems == []


def test_without_a_systemd_session_the_unit_is_printed(server: Host) -> None:
    (server.state / "user_session").unlink()
    output = server.run("deploy.sh", "--without-nemo-rl")
    assert "  ExecStart=" in output and "without systemd: env" in output
    assert not unit(server).exists() and not server.calls("systemctl", "enable")


def test_nemo_rl_and_the_service_can_be_left_out(server: Host) -> None:
    server.run("deploy.sh", "--without-nemo-rl", "--without-service")
    assert not server.calls("bootstrap_nemo_rl.sh") and not server.calls("systemctl")
    assert server.calls("nvtrader-rl", "doctor")


def test_a_failed_bootstrap_stops_before_the_service(server: Host) -> None:
    server.fail("bootstrap_nemo_rl.sh")
    assert "--without-nemo-rl goes on" in server.run("deploy.sh", code=1)
    assert not server.calls("systemctl")


def test_doctors_verdict_is_the_exit_code(server: Host) -> None:
    server.say("sick", "")
    assert "the findings above" in server.run("deploy.sh", "--without-nemo-rl", code=1)


def test_a_dry_run_changes_nothing(server: Host) -> None:
    before = server.contents()
    output = server.run("deploy.sh", "--dry-run")
    assert server.contents() == before
    assert server.calls("bootstrap_nemo_rl.sh", "--dry-run") and not server.calls("make")
    for part in ("make --no-print-directory", "systemctl --user restart", "nvtrader-rl doctor"):
        assert part in output


@pytest.mark.parametrize(("arguments", "message"), [(["--port", "http"], "no number"), (["--fast"], "--fast")])
def test_wrong_use_is_an_error(server: Host, arguments: list[str], message: str) -> None:
    assert message in server.run("deploy.sh", *arguments, code=2)


def test_without_make_the_remedy_is_named(host: Host) -> None:
    assert "apt-get install make" in host.run("deploy.sh", code=1)


def test_the_entry_point_of_the_image_sets_the_variables_and_becomes_the_command(host: Host) -> None:
    show = ["bash", "-c", 'echo "python=${NVTRADER_NEMORL_PYTHON:-none}"']
    assert host.run("docker_entry.sh", *show) == "python=none\n"
    (host.repo / "third_party/nemo-rl.env").write_text('NVTRADER_NEMORL_PYTHON="/an env/python"\n')
    assert host.run("docker_entry.sh", *show) == "python=/an env/python\n"
    host.run("docker_entry.sh", "bash", "-c", "exit 7", code=7)
