"""The bootstrap as a whole: from nothing to everything, again, broken off, looked at, and not done at all."""

from __future__ import annotations

import re
import subprocess

import pytest
from script_host import REPO, TORCH_OF_GB10, Host, git


def states(output: str) -> dict[str, str]:
    """What was said last about each step."""
    return {m[2]: m[1] for m in re.finditer(r"(?m)^(ok|nothing|doing|missing) +([a-z-]+): ", output)}


def test_a_bare_gb10_is_set_up(finished: tuple[Host, str]) -> None:
    gb10, output = finished
    assert set(states(output).values()) == {"ok", "nothing"}
    assert git(gb10.source, "rev-parse", "HEAD") == gb10.commit
    assert (gb10.source / "3rdparty/Megatron-Bridge/3rdparty/Megatron-LM/megatron/core/__init__.py").exists()
    assert f"torch {TORCH_OF_GB10} computes on NVIDIA GB10 of capability 12.1" in output
    assert "export NVTRADER_NEMORL_PYTHON=" in output and "export NVTRADER_NEMORL_SRC=" in output


def test_a_second_run_changes_nothing(finished: tuple[Host, str]) -> None:
    gb10, _ = finished
    before = gb10.contents()
    gb10.forget_calls()
    again = gb10.bootstrap()
    assert gb10.contents() == before
    assert set(states(again).values()) == {"ok", "nothing"} and "$ " not in again
    assert not gb10.calls("python", "pip") and not gb10.calls("git", "fetch") and not gb10.calls("conda", "create")


def test_conda_makes_the_environment_if_it_is_there_else_uv(gb10: Host) -> None:
    gb10.bootstrap("--only", "source,environment")
    (create,) = gb10.calls("conda", "create")
    assert "nemo_rl" in create and "python=3.13.13" in create
    gb10.take_away("conda")
    gb10.put("uv")
    gb10.bootstrap("--only", "environment")
    (venv,) = gb10.calls("uv", "venv")
    assert "3.13.13" in venv and venv[-1] == str(gb10.source / ".venv")


def test_the_users_choice_of_the_tool_counts(gb10: Host) -> None:
    gb10.put("uv")
    gb10.bootstrap("--uv", "--only", "source,environment")
    assert not gb10.calls("conda", "create") and (gb10.source / ".venv/bin/python").exists()


@pytest.mark.parametrize("broken", ["submodule update", "conda create", "pip install"])
def test_a_run_that_broke_off_goes_on_where_it_stopped(gb10: Host, broken: str) -> None:
    steps = ("--only", "source,submodules,environment,package,torch")
    gb10.fail(broken)
    output = gb10.bootstrap(*steps, code=1)
    assert "error: this command ended with code 1" in output
    assert output.rstrip().splitlines()[-1].startswith("       ")  # the remedy
    done = [step for step, state in states(output).items() if state == "ok"]
    gb10.fail()
    gb10.forget_calls()
    assert set(states(gb10.bootstrap(*steps)).values()) == {"ok"}
    assert not gb10.calls("git", "fetch") and "source" in done
    assert bool(gb10.calls("conda", "create")) == ("environment" not in done)


def test_check_says_what_is_missing_and_changes_nothing(gb10: Host) -> None:
    before = gb10.contents()
    output = gb10.bootstrap("--check", code=1)
    assert gb10.contents() == before
    missing = [step for step, state in states(output).items() if state == "missing"]
    assert missing == ["source", "submodules", "environment", "package", "torch", "capability", "uv", "verify"]
    assert f"missing: {' '.join(missing)}" in output


def test_check_finds_nothing_missing_after_a_run(finished: tuple[Host, str]) -> None:
    gb10, _ = finished
    before = gb10.contents()
    assert "missing" not in gb10.bootstrap("--check")
    assert gb10.contents() == before


def test_check_of_an_opt_in_step_fails_until_it_is_done(finished: tuple[Host, str]) -> None:
    gb10, _ = finished
    output = gb10.bootstrap("--check", "--with-megatron", "--share-worker", code=1)
    assert "missing: shared-worker megatron" in output


def test_megatron_can_be_asked_for_by_its_variable(host: Host) -> None:
    host.put("nvcc")
    assert "prefetch_venvs" in host.bootstrap("--dry-run", WITH_MEGATRON="1", TORCH_CUDA_ARCH_LIST="12.1")
    assert "prefetch_venvs" not in host.bootstrap("--dry-run")


@pytest.mark.parametrize("capability", ["", "9.0\n"])
def test_a_dry_run_goes_through_on_a_bare_machine_without_blackwell_too(host: Host, capability: str) -> None:
    if capability:
        host.say("capability", capability)
    assert "torch==" not in host.bootstrap("--dry-run")


def test_a_dry_run_prints_every_command_and_runs_none(gb10: Host) -> None:
    gb10.put("nvcc")
    before = gb10.contents()
    output = gb10.bootstrap("--dry-run", "--with-megatron", "--share-worker")
    assert gb10.contents() == before
    commands = re.findall(r"(?m)^  \$ (\S+).*? (init|fetch|update|create|pip|prefetch_venvs|ln)?\b", output)
    assert commands
    for part in ("git init", "fetch -q --depth 1", "submodule update --init --recursive", "create -y", "install.* -e "):
        assert re.search(part, output), part
    assert f"torch=={TORCH_OF_GB10}" in output and "prefetch_venvs" in output
    assert not gb10.calls("conda", "create") and not gb10.calls("git", "init")


def test_the_written_variables_work_in_a_shell_and_for_systemd(finished: tuple[Host, str]) -> None:
    gb10, output = finished
    file = gb10.repo / "third_party/nemo-rl.env"
    script = 'set -a; . "$1"; set +a; env'
    shell = subprocess.run(["bash", "-c", script, "-", str(file)], capture_output=True, text=True, check=True)
    values = dict(line.split("=", 1) for line in shell.stdout.splitlines() if "=" in line)
    expected = {
        "NVTRADER_NEMORL_PYTHON": str(gb10.conda_python),
        "NVTRADER_NEMORL_SRC": str(gb10.source),
        "UV_PYTHON": str(gb10.conda_python),
        "UV_PYTHON_PREFERENCE": "system",
        "TORCH_CUDA_ARCH_LIST": "12.1",
    }
    assert {name: values.get(name) for name in expected} == expected
    assert all(re.fullmatch(r'#.*|[A-Z_]+="[^"$`\\]*"', line) for line in file.read_text().splitlines())
    exports = "\n".join(line for line in output.splitlines() if line.startswith("export "))
    said = subprocess.check_output(["bash", "-c", exports + '\nprintf %s "$NVTRADER_NEMORL_SRC"'], text=True)
    assert said == str(gb10.source)


def test_with_its_variables_set_the_next_run_finds_the_same_things(finished: tuple[Host, str]) -> None:
    gb10, _ = finished
    before = gb10.contents()
    gb10.bootstrap(NVTRADER_NEMORL_PYTHON=str(gb10.conda_python), NVTRADER_NEMORL_SRC=str(gb10.source))
    assert gb10.contents() == before


def test_the_tree_goes_where_the_variable_says(gb10: Host) -> None:
    elsewhere = gb10.root / "big disk" / "RL"
    gb10.bootstrap("--uv", "--only", "source", NVTRADER_NEMORL_SRC=str(elsewhere))
    assert git(elsewhere, "rev-parse", "HEAD") == gb10.commit and not gb10.source.exists()


def test_our_doctor_has_the_last_word(gb10: Host) -> None:
    gb10.with_package()
    gb10.with_bridge("dataset_name: PreferenceDataset\n", '{"context":[],"completions":[{"rank":0}]}\n')
    output = gb10.bootstrap()
    assert output.rstrip().endswith(f"doctor: {gb10.conda_python} in {gb10.source}")


def test_every_gotcha_of_the_specification_is_a_step_that_can_be_run_alone(finished: tuple[Host, str]) -> None:
    gb10, _ = finished
    listed = gb10.bootstrap("--list")
    assert sorted(map(int, re.findall(r"gotcha (\d+)", listed))) == list(range(1, 11))
    for line in listed.splitlines():
        if "gotcha" in line:
            step = line.split()[0]
            assert set(states(gb10.bootstrap("--only", step))) == {step}


@pytest.mark.parametrize(("arguments", "message"), [(["--only", "tourch"], "no step tourch"), (["--fast"], "--fast")])
def test_wrong_use_is_an_error_that_names_what_there_is(host: Host, arguments: list[str], message: str) -> None:
    output = host.bootstrap(*arguments, code=2)
    assert message in output and "usage:" in output


def test_steps_named_elsewhere_in_the_project_exist(host: Host) -> None:
    steps = {line.split()[0] for line in host.bootstrap("--list").splitlines()}
    files = [*(REPO / "nvtrader_rl_dagster").rglob("*.py"), *(REPO / "docs").glob("*.md"), REPO / "README.md"]
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            for named in re.findall(r"--only[ =]([a-z-]+(?:,[a-z-]+)*)", line if "bootstrap" in line.lower() else ""):
                assert set(named.split(",")) <= steps, f"{file}: --only {named}"
