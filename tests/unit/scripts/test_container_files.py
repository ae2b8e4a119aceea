"""Dockerfile and compose.yaml, read rather than run: there is no Docker where the tests run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from script_host import REPO

DOCKERFILE = (REPO / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((REPO / "compose.yaml").read_text())


def instructions(name: str) -> list[list[str]]:
    """Words of every instruction of this name, lines joined."""
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", DOCKERFILE))
    return [line.split()[1:] for line in joined.splitlines() if line.startswith(name + " ")]


def sources() -> list[str]:
    """What is copied from the build context."""
    copied = [[word for word in words if not word.startswith("--chown")] for words in instructions("COPY")]
    return [source for words in copied if not words[0].startswith("--from") for source in words[:-1]]


def ignored(path: str) -> bool:
    """Whether .dockerignore leaves a file out: the last line that fits counts."""
    out = False
    for line in (REPO / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern = line.lstrip("!").removeprefix("**/")
            parts = Path(path).parts
            heads = ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]
            names = parts if line.startswith("**/") else heads
            if any(fnmatch(name, pattern) for name in names):
                out = not line.startswith("!")
    return out


def test_whatever_the_image_copies_is_there_and_not_ignored() -> None:
    assert len(sources()) >= 6
    for source in sources():
        files = [REPO / source] if (REPO / source).is_file() else list((REPO / source).glob("*"))
        assert files, source
        assert any(not ignored(str(file.relative_to(REPO))) for file in files), source


def test_the_build_context_has_no_state_no_environments_and_no_checkout() -> None:
    for path in ("data/feedback.db", ".venv/bin/python", ".git/config", "third_party/nemo-rl/pyproject.toml", ".env"):
        assert ignored(path), path
    for path in ("nvtrader_rl_dagster/cli/up.py", "scripts/lib/probe.py", "third_party/nemo-rl.pin"):
        assert not ignored(path), path


def test_every_stage_that_is_built_upon_or_copied_from_exists() -> None:
    stages = {words[2] for words in instructions("FROM")}
    assert {"base-0", "base-1", "app"} <= stages
    copied = {w.partition("=")[2] for words in instructions("COPY") for w in words if w.startswith("--from=")}
    assert copied <= stages
    assert ["base-${WITH_NEMORL}", "AS", "base"] in instructions("FROM")


def test_compose_passes_only_arguments_that_the_dockerfile_has() -> None:
    declared = {words[0].partition("=")[0] for words in instructions("ARG")}
    passed = COMPOSE["services"]["app"]["build"]["args"]
    assert {"WITH_NEMORL", "WITH_MEGATRON"} <= set(passed) <= declared
    assert passed["WITH_NEMORL"] == "${WITH_NEMORL:-0}" and passed["WITH_MEGATRON"] == "${WITH_MEGATRON:-0}"


def test_the_stage_with_nemo_rl_bootstraps_it_and_reads_both_arguments() -> None:
    stage = re.search(r"(?s)FROM base AS nemo-rl\n(.*?)\nFROM ", DOCKERFILE)
    assert stage and "ARG WITH_NEMORL" in stage[1] and "ARG WITH_MEGATRON" in stage[1]
    assert "scripts/bootstrap_nemo_rl.sh --uv --force-torch" in stage[1]
    script = (REPO / "scripts/bootstrap_nemo_rl.sh").read_text()
    assert "WITH_MEGATRON=${WITH_MEGATRON:-0}" in script


def test_the_service_listens_on_every_address_of_the_container_only() -> None:
    (command,) = instructions("CMD")
    assert '"--host", "0.0.0.0"' in " ".join(command) and '"up"' in " ".join(command)
    (port,) = COMPOSE["services"]["app"]["ports"]
    assert port == "${BIND:-127.0.0.1}:${PORT:-3000}:3000"
    assert ["3000"] in instructions("EXPOSE") and "127.0.0.1:3000/server_info" in DOCKERFILE


def test_the_options_of_the_command_are_those_of_nvtrader_rl_up() -> None:
    command = [sys.executable, "-m", "nvtrader_rl_dagster.cli", "up", "--help"]
    shown = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"COLUMNS": "200", "PATH": ""}
    ).stdout
    assert "--host" in shown and "--port" in shown


def test_state_lies_on_the_volume_and_the_user_is_not_root() -> None:
    assert ["/data"] in instructions("VOLUME")
    assert COMPOSE["services"]["app"]["volumes"] == ["state:/data"] and "state" in COMPOSE["volumes"]
    variables = " ".join(word for words in instructions("ENV") for word in words)
    assert "NVTRADER_RL_HOME=/data" in variables and "DAGSTER_HOME=/data/dagster" in variables
    assert instructions("USER")[-1] == ["10001:10001"]


def test_the_gpu_is_reserved_in_a_profile_only_and_both_services_cannot_run_at_once() -> None:
    app, gpu = COMPOSE["services"]["app"], COMPOSE["services"]["app-gpu"]
    assert "deploy" not in app and gpu["profiles"] == ["gpu"]
    (device,) = gpu["deploy"]["resources"]["reservations"]["devices"]
    assert device["driver"] == "nvidia" and device["capabilities"] == ["gpu"]
    same = ("image", "build", "volumes", "container_name")
    assert {key: app[key] for key in same} == {key: gpu[key] for key in same}


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed (it comes with the extra dev on Linux)")
    done = subprocess.run(
        [hadolint, "--no-color", str(REPO / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
