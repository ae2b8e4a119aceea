"""What `run.json` says is what happened: with real child processes that end in every way a trainer can."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from nvtrader_rl_dagster.nemo_rl.configs import BuiltConfig, PreferenceData
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunState, RunStore
from nvtrader_rl_dagster.nemo_rl.training import TrainingFailedError, TrainingRun

STEP = (
    'print("=" * 25 + " Step 1/1 " + "=" * 25); '
    'print("📊 Training Results:\\n  • loss: 0.6931\\n\\n⏱️  Timing:", flush=True)'
)
CHECKPOINT = """
import json, pathlib
folder = pathlib.Path(__file__).with_name("checkpoints") / "step_1"
weights = folder / "policy/weights/model/consolidated"
weights.mkdir(parents=True)
(weights / "config.json").write_text("{}"); (weights / "model.safetensors").write_bytes(b"weights")
(folder / "training_info.json").write_text("{}")
"""


def start(tmp_path: Path, code: str) -> tuple[TrainingRun, RunDirectory, list[str]]:
    directory = RunStore(tmp_path).create("dpo", "local")
    script = directory.path / "child.py"
    script.write_text(textwrap.dedent(code), encoding="utf-8")
    built = BuiltConfig({"policy": {"model_name": "builtin:tiny"}}, 1, [])
    data = PreferenceData(tmp_path, tmp_path, 1, 0, "data", "ledger", 7, 0.2)
    return TrainingRun(directory, built, data), directory, [sys.executable, "-u", str(script)]


def run_to_end(tmp_path: Path, code: str) -> RunDirectory:
    run, directory, command = start(tmp_path, code)
    list(run.stream(command, os.environ, echo=lambda text: None, grace_seconds=1))
    return directory


def test_a_step_and_a_checkpoint_are_a_success_with_a_manifest(tmp_path: Path) -> None:
    directory = run_to_end(tmp_path, STEP + CHECKPOINT)
    record = directory.record()
    assert (record.state, record.exit_code, record.failure) == (RunState.SUCCEEDED, 0, None)
    assert record.started and record.ended
    manifest = (directory.checkpoints / "step_1" / "manifest.json").read_text()
    assert '"trained_through_seq": 7' in manifest and f'"{directory.run_id}/step_1"' in manifest


@pytest.mark.parametrize(
    ("code", "failure", "said"),
    [
        ("print('SETUP COMPLETE')", "zero_steps", "without one optimizer step"),
        (CHECKPOINT, "zero_steps", "without one optimizer step"),
        (STEP, "no_checkpoint", "without a complete checkpoint"),
        (STEP + CHECKPOINT + "\nraise SystemExit('ValueError: row 3 is broken')", "exit", "row 3 is broken"),
    ],
)
def test_an_end_without_a_trained_checkpoint_is_a_failure_whatever_the_exit_code(
    tmp_path: Path, code: str, failure: str, said: str
) -> None:
    with pytest.raises(TrainingFailedError, match=said):
        run_to_end(tmp_path, code)
    (directory,) = RunStore(tmp_path).all()
    record = directory.record()
    assert record.state is RunState.FAILED and record.failure is not None and record.failure["code"] == failure


def test_a_consumer_that_stops_reading_cancels_the_run_and_leaves_no_process(tmp_path: Path) -> None:
    run, directory, command = start(tmp_path, STEP + "\nimport time; time.sleep(120)")
    stream = run.stream(command, os.environ, echo=lambda text: None, grace_seconds=1)
    next(batch for batch in stream if batch)
    assert directory.record().state is RunState.RUNNING
    children = psutil.Process().children()
    assert any(str(directory.path) in " ".join(child.cmdline()) for child in children)
    stream.close()
    assert directory.record().state is RunState.CANCELLED
    assert not [c for c in psutil.Process().children() if str(directory.path) in " ".join(c.cmdline())]
