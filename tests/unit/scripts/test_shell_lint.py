"""Every shell script of the project is clean."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from script_host import REPO

SCRIPTS = [*sorted((REPO / "scripts").glob("*.sh")), REPO / ".ci" / "run"]
ENTRIES = ("bootstrap_nemo_rl.sh", "deploy.sh", "docker_entry.sh", "make_venv.sh", "run")


def test_shellcheck_finds_nothing() -> None:
    shellcheck = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip(
            "shellcheck is not installed (it comes with the extra dev on x86-64; else apt-get install shellcheck)"
        )
    command = [shellcheck, "--external-sources", "--check-sourced", *map(str, SCRIPTS)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPO, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_can_be_run_and_stops_at_the_first_error(script: Path) -> None:
    text = script.read_text()
    assert script.name in ENTRIES
    assert text.startswith("#!/usr/bin/env bash\n") and "\nset -euo pipefail\n" in text
    assert script.stat().st_mode & 0o111


def test_no_script_evaluates_text_or_kills_by_name() -> None:
    for file in [*SCRIPTS, *sorted((REPO / "scripts/lib").glob("*.sh"))]:
        code = [line for line in file.read_text().splitlines() if not line.lstrip().startswith("#")]
        for word in ("eval ", "pkill", "killall", "ray stop"):
            assert not [line for line in code if word in line], f"{file.name}: {word}"


def test_a_script_is_no_drawer_for_everything() -> None:
    sizes = {file.name: len(file.read_text().splitlines()) for file in (REPO / "scripts").rglob("*.sh")}
    assert {name: lines for name, lines in sizes.items() if lines > 250} == {}
