"""NeMo-RL's own scripts, started by the bridge through the supervisor: eight rows become a checkpoint, or nothing."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from typer.testing import CliRunner

from nvtrader_rl_dagster.cli import app
from nvtrader_rl_dagster.files import read_json
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl import cancel_run, get_run, launch_run
from nvtrader_rl_dagster.nemo_rl.backends import PYTHON_VARIABLE, SOURCE_VARIABLE
from nvtrader_rl_dagster.nemo_rl.checkpoints import best_checkpoint, complete_checkpoints
from nvtrader_rl_dagster.nemo_rl.configs import BUILDERS, OPTIONS, Target
from nvtrader_rl_dagster.nemo_rl.log_parser import Metric
from nvtrader_rl_dagster.nemo_rl.metrics import read_metrics
from nvtrader_rl_dagster.nemo_rl.processes import launches
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunState, RunStore
from tests.contract.rows import data_for
from tests.contract.trees import Tree

pytestmark = pytest.mark.slow
SECRET = "sesame-7f3a"


@pytest.fixture
def place(home: Path, tree: Tree, nemo_rl_python: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv(SOURCE_VARIABLE, str(tree.folder))
    monkeypatch.setenv(PYTHON_VARIABLE, str(nemo_rl_python))
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    monkeypatch.setenv("NVTRADER_RL_STORE_PASSWORD", SECRET)
    return Home(home)


def start(algo: str, place: Home, tree: Tree, model: Path, **changes: Any) -> RunDirectory:
    """Four steps of two rows; a checkpoint every other step."""
    names = {"base_model": str(model), "max_sequence_tokens": 256, "save_period": 2}
    names |= {"batch_pairs": 2, "batch_conversations": 2}
    options = OPTIONS[algo](**{k: v for k, v in {**names, **changes}.items() if k in OPTIONS[algo].model_fields})
    data = data_for(algo, place.root / "data")
    target = Target(version=tree.version, precision="float32")
    config = BUILDERS[algo](options, data, place.root / "unused", place.root / "unused", target).config
    del config["checkpointing"]["checkpoint_dir"], config["logger"]["log_dir"]
    return RunStore(place.runs).get(launch_run(algo, config, backend="nemo_rl").run_id)


def ended(directory: RunDirectory, seconds: float = 400) -> RunState:
    deadline = time.monotonic() + seconds
    while not get_run(directory.run_id).ended_for_good:
        assert time.monotonic() < deadline, directory.log.read_text()[-3000:]
        time.sleep(0.5)
    return get_run(directory.run_id).state


def metric(directory: RunDirectory, split: str, name: str) -> list[tuple[int, float | None]]:
    found: list[Metric] = read_metrics(directory.metrics)
    return [(m.step, m.value) for m in found if m.split == split and m.name == name]


def nothing_left(place: Home) -> bool:
    return not launches(place.lease) and not [
        p for p in psutil.process_iter(["name"]) if p.info["name"] in ("raylet", "gcs_server")
    ]


@pytest.mark.parametrize("algo", ["dpo", "sft", "rm"])
def test_eight_rows_become_checkpoints_with_a_measured_validation(
    algo: str, place: Home, tree: Tree, tiny_model: Path
) -> None:
    directory = start(algo, place, tree, tiny_model)
    assert ended(directory) is RunState.SUCCEEDED, get_run(directory.run_id).failure
    steps = [step for step, _ in metric(directory, "train", "loss")]
    assert steps == [1, 2, 3, 4]
    held_out = dict(metric(directory, "validation", "loss"))
    assert {0, 2, 4} <= set(held_out) and all(value is not None for value in held_out.values())
    if algo == "dpo":
        assert held_out[0] == pytest.approx(math.log(2), abs=5e-5), "policy and reference are the same model"
    checkpoints = complete_checkpoints(directory.checkpoints)
    assert [checkpoint.step for checkpoint in checkpoints] == [2, 4]
    for checkpoint in checkpoints:
        assert checkpoint.manifest["base_model"] == str(tiny_model)
        assert SECRET not in (checkpoint.path / "config.yaml").read_text()
        assert yaml.safe_load((checkpoint.path / "config.yaml").read_text())["policy"]["model_name"] == str(tiny_model)
    assert SECRET not in directory.log.read_text()
    assert nothing_left(place)
    best = best_checkpoint(checkpoints)
    exported = CliRunner().invoke(app, ["checkpoints", "export", directory.run_id, "--step", "best"])
    assert best is not None and exported.exit_code == 0, exported.output
    kind = "LlamaForSequenceClassification" if algo == "rm" else "LlamaForCausalLM"
    assert read_json(best.huggingface / "config.json")["architectures"] == [kind]
    assert (best.huggingface / "tokenizer.json").exists()


def test_cancelling_leaves_no_ray_process(place: Home, tree: Tree, tiny_model: Path) -> None:
    directory = start("dpo", place, tree, tiny_model, epochs=500)
    deadline = time.monotonic() + 300
    while len(metric(directory, "train", "loss")) < 1:
        assert time.monotonic() < deadline and not get_run(directory.run_id).ended_for_good
        time.sleep(0.5)
    cancel_run(directory.run_id, by="the test")
    assert ended(directory, seconds=90) is RunState.CANCELLED
    assert nothing_left(place)
