"""What really arrives in a trainer and its supervisor, read from real processes; and what is written to disk."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import orjson
import pytest

from nvtrader_rl_dagster.nemo_rl.backends import Backend, Trainer, choose_trainer
from nvtrader_rl_dagster.nemo_rl.environment import DRIVER_PATH
from nvtrader_rl_dagster.nemo_rl.launch_files import Limits
from nvtrader_rl_dagster.nemo_rl.processes import environment_of
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunState
from nvtrader_rl_dagster.nemo_rl.training import TrainingRun
from tests.process.launching import CHECKPOINT, STEP, Workplace, said, supervisor, wait_for

SECRET = "sesame-91c2"
PLANTED = {
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "HF_TOKEN": SECRET,
    "WANDB_API_KEY": SECRET,
    "NVIDIA_API_KEY": SECRET,
    "NVTRADER_RL_STORE": f"postgresql://nv:{SECRET}@db/feedback",
    "HTTPS_PROXY": f"http://me:{SECRET}@proxy.example:3128",
    "UV_INDEX_DESK_PASSWORD": SECRET,
    "SOMETHING_ELSE": SECRET,
    "RAY_ADDRESS": "10.0.0.1:6379",
}
#: Writes its environment down, trains a step, and stays until it is told to end.
PROBE = f"""
import json, os, pathlib, sys, time
config = pathlib.Path(sys.argv[sys.argv.index("--config") + 1])
config.with_name("seen.json").write_text(json.dumps(dict(os.environ)))
os.chdir(config.parent)
{STEP}
{CHECKPOINT}
print("written down", flush=True)
while not config.with_name("end").exists():
    time.sleep(0.05)
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose DPO script is the probe, and a parent full of secrets."""
    script = tmp_path / "tree" / "examples" / "run_dpo.py"
    script.parent.mkdir(parents=True)
    script.write_text(PROBE, encoding="utf-8")
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)
    for name in os.environ:
        if name.startswith("PYTEST_"):  # set anew by pytest for each test, in the middle of a launch
            monkeypatch.delenv(name)
    return tmp_path / "tree"


def train(place: Workplace, trainer: Trainer) -> tuple[RunDirectory, dict[str, str], dict[str, str]]:
    """Run the probe; what its supervisor and it saw."""
    directory = place.new_run()
    process = TrainingRun(directory, trainer, place.lease, Limits(grace=1)).start()
    wait_for(lambda: said(directory, "written down"))
    supervisors = {os.fsdecode(k): os.fsdecode(v) for k, v in environment_of(supervisor(directory)).items()}
    (directory.path / "end").touch()
    process.wait()
    assert directory.record().state is RunState.SUCCEEDED, directory.record().failure
    return directory, supervisors, orjson.loads((directory.path / "seen.json").read_bytes())


def test_nothing_outside_the_allow_list_arrives(place: Workplace, tree: Path) -> None:
    trainer = choose_trainer(Backend.NEMO_RL, "dpo", sys.executable, str(tree))
    directory, supervisors, seen = train(place, trainer)
    decided = {
        "PYTHONPATH": str(DRIVER_PATH),
        "PYTHONUNBUFFERED": "1",
        "UV_PYTHON": sys.executable,
        "UV_PYTHON_PREFERENCE": "system",
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "NEMO_RL_VENV_DIR": str(tree / "venvs"),
        "WANDB_MODE": "offline",
        "NVTRADER_RL_LEASE": str(place.lease),
    }
    assert decided.items() <= seen.items()
    own = {"PATH", "PYTHONUTF8", "VIRTUAL_ENV", "NVTRADER_LAUNCH_ID", "RAY_TMPDIR", "LC_CTYPE"}
    inherited = set(seen) - set(decided) - own
    assert inherited <= set(os.environ) - set(PLANTED)
    assert all(not name.startswith(("DAGSTER", "AWS", "NVTRADER_RL_STORE")) for name in inherited)
    for environment in (seen, supervisors):
        assert SECRET not in str(environment) and "RAY_ADDRESS" not in environment
    assert supervisors.get("PYTHONPATH") == os.environ.get("PYTHONPATH"), "it is our own Python"
    written = [file for file in directory.path.rglob("*") if file.is_file()]
    assert len(written) > 8
    assert [file for file in written if SECRET.encode() in file.read_bytes()] == []


def test_what_is_named_arrives(place: Workplace, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVTRADER_NEMORL_PASS_ENV", "HF_TOKEN")
    trainer = choose_trainer(
        Backend.NEMO_RL, "dpo", sys.executable, str(tree), pass_environment=["SOMETHING_ELSE", "NOT_SET_AT_ALL"]
    )
    _, _, seen = train(place, trainer)
    assert {name for name, value in seen.items() if SECRET in value} == {"HF_TOKEN", "SOMETHING_ELSE"}
    assert "NOT_SET_AT_ALL" not in seen
