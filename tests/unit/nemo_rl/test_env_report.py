"""What the report about NeMo-RL says of a machine, whatever is missing or broken there."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from nvtrader_rl_dagster.nemo_rl import env_probe
from nvtrader_rl_dagster.nemo_rl.backends import Backend
from nvtrader_rl_dagster.nemo_rl.env_report import EnvReport, env_report
from nvtrader_rl_dagster.nemo_rl.source_tree import read_source_tree
from nvtrader_rl_dagster.nemo_rl.worker_venvs import VenvState, worker_venvs
from tests.nemo_rl_host import NemoRlHost, nemo_rl_host

OLD_PYTHON = sys.version_info[:2] < (3, 13)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NemoRlHost:
    return nemo_rl_host(tmp_path, monkeypatch)


def steps(report: EnvReport) -> list[str]:
    """Of the bootstrap, without the one for the Python that these tests happen to run in."""
    return [item.step for item in report.missing if not (OLD_PYTHON and "is Python 3" in item.what)]


def test_a_machine_where_nothing_is_missing_is_ready(host: NemoRlHost) -> None:
    report = env_report()
    assert (report.bootstrapped, report.ready, report.problems, steps(report)) == (True, True, [], [])
    assert report.backend == "nemo_rl"
    assert (report.source.version, report.source.release) == ("0.6.0", "0.6.0")
    assert report.interpreter is not None and report.torch is not None and report.memory is not None
    assert report.interpreter.python == ".".join(map(str, sys.version_info[:3]))
    assert report.interpreter.versions["ray"] == "2.54.0" and report.interpreter.versions["vllm"] is None
    assert (report.torch.version, report.torch.cuda, report.torch.computes) == ("2.12.0+cu130", "13.0", True)
    assert (report.gpus[0].name, report.gpus[0].capability) == ("NVIDIA GB10", "12.1")
    assert report.memory.unified and 0 < report.memory.available <= report.memory.total


def test_the_report_is_strict_json_with_what_follows_from_it(host: NemoRlHost) -> None:
    host.script("nvidia-smi", 'echo "NVIDIA H200, 9.0, 580.95.05, 143771, 100"')
    said = orjson.loads(orjson.dumps(env_report().to_json()))
    assert said["source"]["path"] == str(host.tree) and said["source"]["submodules"] == {"3rdparty/Gym": True}
    assert said["interpreter"]["placeholder"] is False
    assert said["memory"] == {"total": 143771 * 2**20, "available": 143671 * 2**20, "unified": False}
    assert {"ready", "why", "gpus", "torch", "worker_venvs", "missing"} <= set(said)


BREAKAGES: dict[str, tuple[Callable[[NemoRlHost], object], str, str, bool]] = {
    "no tree": (lambda h: shutil.rmtree(h.tree), "source", "cannot be read", True),
    "another release": (lambda h: h.release(5), "source", "says NeMo-RL 0.5.0", True),
    "no script": (lambda h: (h.tree / "examples/run_dpo.py").unlink(), "source", "run_dpo.py is not there", True),
    "no submodules": (
        lambda h: (h.tree / "3rdparty/Gym/pyproject.toml").unlink(),
        "submodules",
        "3rdparty/Gym",
        False,
    ),
    "no interpreter": (lambda h: h.python.unlink(), "environment", "is no interpreter", True),
    "no packages": (lambda h: h.remove("ray"), "package", "lacks ray", True),
    "no NeMo-RL": (lambda h: h.remove("nemo_rl"), "package", "lacks nemo_rl", True),
    "no torch": (lambda h: h.remove("torch"), "torch", "lacks torch", True),
    "a placeholder": (
        lambda h: h.replace("nemo_rl", "0.0.0", address=False),
        "placeholder",
        "empty placeholder",
        True,
    ),
    "torch for the CPU": (
        lambda h: replace(h.packages / "torch/__init__.py", 'cuda = "13.0"', "cuda = None"),
        "torch",
        "is a CPU build",
        True,
    ),
    "torch without kernels": (
        lambda h: replace(
            h.packages / "torch/__init__.py", "pass", 'raise RuntimeError("CUDA error: no kernel image\\nsecond line")'
        ),
        "torch,capability",
        "does not compute on NVIDIA GB10 of capability 12.1: CUDA error: no kernel image",
        True,
    ),
    "a wrong product": (
        lambda h: replace(h.packages / "torch/__init__.py", "return True", "return False"),
        "torch,capability",
        "a wrong product",
        True,
    ),
    "a GPU that torch does not see": (
        lambda h: replace(h.packages / "torch/__init__.py", "lambda: True", "lambda: False"),
        "",
        "sees no GPU; the driver is 580.95.05",
        True,
    ),
    "no GPU": (lambda h: (h.folder / "bin/nvidia-smi").unlink(), "", "no NVIDIA GPU is seen", True),
    "an empty worker environment": (
        lambda h: shutil.copytree(h.folder / "env/bin", h.tree / "venvs/nemo_rl.Worker/bin"),
        "venvs",
        "nemo_rl.Worker (empty)",
        False,
    ),
}


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.parametrize("name", BREAKAGES)
def test_what_is_missing_is_named_with_the_step_that_fixes_it(host: NemoRlHost, name: str) -> None:
    breaks, step, says, blocks = BREAKAGES[name]
    breaks(host)
    report = env_report()
    (item,) = [item for item in report.missing if item.step == step and says in item.what]
    assert item.blocks is blocks and report.ready is not blocks
    assert item.fix.endswith(f"bootstrap_nemo_rl.sh --only {step}") if step else item.fix
    assert steps(report) == [step], "and nothing else"
    assert orjson.dumps(report.to_json())


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("sleep 60", "did not answer within 0.5 s"),
        ("echo hello", "is no Python"),
        ("echo it is broken >&2; exit 3", "it is broken"),
        ("exit 3", "exit code 3"),
    ],
)
def test_an_interpreter_that_hangs_or_is_none_is_a_problem_and_the_rest_is_reported(
    host: NemoRlHost, monkeypatch: pytest.MonkeyPatch, body: str, says: str
) -> None:
    monkeypatch.setattr(env_probe, "_INTERPRETER_SECONDS", 0.5)
    monkeypatch.setenv("NVTRADER_NEMORL_PYTHON", str(host.script("python", f"{body}\ntrue")))
    started = time.monotonic()
    report = env_report()
    assert time.monotonic() - started < 20, "what the wrapper started is ended as well"
    assert report.interpreter is None and not report.ready and not report.bootstrapped
    assert any(says in problem for problem in report.problems)
    assert report.source.version == "0.6.0" and report.gpus
    assert steps(report) == ["environment"]


def test_a_torch_that_hangs_on_import_is_a_problem_and_the_packages_are_reported(
    host: NemoRlHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env_probe, "_TORCH_SECONDS", 0.5)
    (host.packages / "torch" / "__init__.py").write_text("import time; time.sleep(60)")
    report = env_report()
    assert report.torch is None and report.interpreter is not None and not report.ready
    assert any("did not answer within 0.5 s" in problem for problem in report.problems)


def test_torch_is_imported_once_while_nothing_changes_and_not_at_all_when_not_asked(host: NemoRlHost) -> None:
    imported = host.packages / "torch" / "imported"
    assert env_report(ask_torch=False).torch is None and not imported.exists()
    assert env_report().torch == env_report().torch is not None
    assert imported.read_text() == "x"
    host.remove("torch-")
    (host.packages / "torch-2.13.0.dist-info").mkdir()
    (host.packages / "torch-2.13.0.dist-info" / "METADATA").write_text("Name: torch\nVersion: 2.13.0\n")
    env_report()
    assert imported.read_text() == "xx"


def test_a_broken_nvidia_smi_is_a_problem(host: NemoRlHost) -> None:
    host.script("nvidia-smi", "echo NVIDIA-SMI has failed because it could not talk to the driver; exit 9")
    report = env_report()
    assert not report.ready and "could not talk to the driver" in report.problems[0]


def test_a_backend_that_cannot_start_says_why(host: NemoRlHost) -> None:
    host.python.unlink()
    report = env_report(Backend.NEMO_RL)
    assert report.backend is None and "is no interpreter" in report.why


def test_nothing_at_all_is_a_report_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    report = env_report(python=str(tmp_path / "python"), source=str(tmp_path / "tree"))
    assert not report.bootstrapped and report.backend == "local"
    assert [item.step for item in report.missing] == ["source", "environment", ""]


def test_the_commit_is_that_of_the_tree_and_never_of_a_repository_around_it(host: NemoRlHost, tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C"]
    for folder in (tmp_path, host.tree):
        subprocess.run([*git, str(folder), "init", "-q"], check=True)
        subprocess.run([*git, str(folder), "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    head = subprocess.run([*git, str(host.tree), "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    assert read_source_tree(host.tree).commit == head.stdout.strip()
    shutil.rmtree(host.tree / ".git")
    assert read_source_tree(host.tree).commit is None


def test_a_release_candidate_is_shown_as_it_calls_itself(host: NemoRlHost) -> None:
    info = host.tree / "nemo_rl" / "package_info.py"
    info.write_text('MAJOR = 0\nMINOR = 7\nPATCH = 0\nPRE_RELEASE = "rc1"\n')
    found = read_source_tree(host.tree)
    assert (found.version, found.release) == ("0.7.0rc1", "0.7.0")


def test_worker_environments_are_told_apart(host: NemoRlHost) -> None:
    venvs = host.tree / "venvs"
    for name in ("absent", "empty", "unfinished"):
        (venvs / name).mkdir(parents=True)
    for name in ("empty", "unfinished"):
        shutil.copytree(host.python.parent, venvs / name / "bin", symlinks=True)
    (venvs / "unfinished" / "STARTED_ENV_BUILDER").touch()
    (venvs / "shared").symlink_to(host.folder / "env")
    (venvs / "a file").touch()
    assert {venv.name: venv.state for venv in worker_venvs(venvs)} == {
        "absent": VenvState.ABSENT,
        "empty": VenvState.EMPTY,
        "unfinished": VenvState.UNFINISHED,
        "shared": VenvState.READY,
    }
    assert worker_venvs(venvs / "no folder") == []
