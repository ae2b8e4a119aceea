"""What `run.json` says is what happened: with real child processes that end in every way a trainer can."""

from __future__ import annotations

import os
import resource
import signal
import sys
import textwrap
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from nvtrader_rl_dagster.nemo_rl.backends import Trainer
from nvtrader_rl_dagster.nemo_rl.cancel import request_cancel
from nvtrader_rl_dagster.nemo_rl.launch_files import Limits
from nvtrader_rl_dagster.nemo_rl.metrics import read_metrics
from nvtrader_rl_dagster.nemo_rl.resume import CheckpointMismatchError, prepare_resume, refuse_other_training
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunState
from nvtrader_rl_dagster.nemo_rl.training import TrainingCancelledError, TrainingFailedError, TrainingRun
from tests.process.launching import CHECKPOINT, STEP, Workplace, said, supervisor, wait_for


@dataclass(frozen=True)
class PythonTrainer(Trainer):
    """A trainer whose whole training is some Python code, run in the run's folder."""

    code: str = ""
    folder: Path = field(default_factory=Path)

    def command(self, algo: str, config: Path) -> list[str]:
        script = self.folder / "trainer.py"
        script.write_text(textwrap.dedent(self.code), encoding="utf-8")
        return [self.python, "-u", str(script)]

    @property
    def cwd(self) -> Path:
        return self.folder


def training(place: Workplace, code: str, max_attempts: int = 1) -> TrainingRun:
    directory = place.new_run(trained_through_seq=7, ledger_id="ledger")
    trainer = PythonTrainer("local", "for a test", sys.executable, None, code, directory.path)
    return TrainingRun(directory, trainer, place.lease, Limits(grace=1), max_attempts=max_attempts)


def run_to_end(place: Workplace, code: str, max_attempts: int = 1) -> RunDirectory:
    run = training(place, code, max_attempts)
    list(run.stream())
    return run.directory


def test_a_step_and_a_checkpoint_are_a_success_with_a_manifest(place: Workplace) -> None:
    directory = run_to_end(place, STEP + CHECKPOINT)
    record = directory.record()
    assert (record.state, record.exit_code, record.failure) == (RunState.SUCCEEDED, 0, None)
    assert record.started and record.ended
    manifest = (directory.checkpoints / "step_1" / "manifest.json").read_text()
    assert '"trained_through_seq": 7' in manifest and f'"{directory.run_id}/step_1"' in manifest
    assert '"ledger_id": "ledger"' in manifest


@pytest.mark.parametrize(
    ("code", "failure", "said"),
    [
        ("print('SETUP COMPLETE')", "zero_steps", "without one optimizer step"),
        (CHECKPOINT, "zero_steps", "without one optimizer step"),
        (STEP, "no_checkpoint", "without a complete checkpoint"),
        (STEP + CHECKPOINT + "\nraise SystemExit('ValueError: row 3 is broken')", "exit", "row 3 is broken"),
        ("import os; os.kill(os.getpid(), 9)", "trainer_killed", "SIGKILL"),
    ],
)
def test_an_end_without_a_trained_checkpoint_is_a_failure_whatever_the_exit_code(
    place: Workplace, code: str, failure: str, said: str
) -> None:
    with pytest.raises(TrainingFailedError, match=said):
        run_to_end(place, code)
    (directory,) = place.runs.all()
    record = directory.record()
    assert record.state is RunState.FAILED and record.failure is not None and record.failure["code"] == failure


def test_a_consumer_that_stops_reading_cancels_the_run_and_leaves_no_process(place: Workplace) -> None:
    run = training(place, STEP + "\nimport time; time.sleep(120)")
    stream = run.stream()
    next(batch for batch in stream if batch)
    assert run.directory.record().state is RunState.RUNNING and not place.nothing_left()
    stream.close()
    assert run.directory.record().state is RunState.CANCELLED and place.nothing_left()


def test_a_cancel_request_is_told_from_a_failure_and_never_resumed(place: Workplace) -> None:
    run = training(place, STEP + "\nimport time; time.sleep(120)", max_attempts=3)
    stream = run.stream()
    next(batch for batch in stream if batch)
    request_cancel(run.directory, "anna")
    with pytest.raises(TrainingCancelledError, match="cancelled by anna"):
        list(stream)
    assert run.directory.record().attempt == 1


#: Saves at step 1 and is killed at step 2; when it finds its checkpoint, it goes on to step 2.
CRASHES_ONCE = f"""
import pathlib, os
if pathlib.Path("checkpoints/step_1").exists():
    print("resumed; tmp folders:", list(pathlib.Path("checkpoints").glob("tmp_*")), flush=True)
    print("=" * 25 + " Step 2/2 " + "=" * 25)
    print("📊 Training Results:\\n  • loss: 0.5\\n\\n⏱️  Timing:", flush=True)
else:
{textwrap.indent(STEP.replace("1/1", "1/2") + CHECKPOINT, "    ")}
    pathlib.Path("checkpoints/tmp_step_2").mkdir()
    print("=" * 25 + " Step 2/2 " + "=" * 25)
    print("📊 Training Results:\\n  • loss: 9.9\\n\\n⏱️  Timing:", flush=True)
    os.kill(os.getpid(), 9)
"""


def test_a_killed_trainer_goes_on_from_its_complete_checkpoint(place: Workplace) -> None:
    directory = run_to_end(place, CRASHES_ONCE, max_attempts=2)
    record = directory.record()
    assert (record.state, record.attempt) == (RunState.SUCCEEDED, 2)
    assert said(directory, "resumed; tmp folders: []")
    losses = [(m.step, m.value) for m in read_metrics(directory.metrics) if m.name == "loss"]
    assert losses == [(1, 0.6931), (2, 0.5)], "what was measured after the checkpoint is measured again"


#: Killed at first, then ended by an error whose reason must not be looked for in the first attempt's lines.
FAILS_AFTER_A_CRASH = """
import os, pathlib
if not pathlib.Path("seen").exists():
    pathlib.Path("seen").touch()
    print("*** SIGBUS received at time=1 on cpu 1 ***", flush=True)
    os.kill(os.getpid(), 9)
raise SystemExit('Traceback (most recent call last):\\n  File "x", line 1\\nray.exceptions.ActorDiedError: it died')
"""


def test_the_reason_of_a_failure_is_in_the_lines_of_the_last_attempt(place: Workplace) -> None:
    with pytest.raises(TrainingFailedError, match=r"worker_died.*ActorDiedError: it died"):
        run_to_end(place, FAILS_AFTER_A_CRASH, max_attempts=2)
    (directory,) = place.runs.all()
    assert said(directory, "SIGBUS received")


def test_a_training_that_keeps_crashing_ends_as_failed(place: Workplace) -> None:
    with pytest.raises(TrainingFailedError, match="trainer_killed"):
        run_to_end(place, "import os; os.kill(os.getpid(), 9)", max_attempts=2)
    (directory,) = place.runs.all()
    assert directory.record().attempt == 2


def test_a_killed_supervisor_is_replaced(place: Workplace) -> None:
    run = training(
        place,
        "import time, pathlib\nif not pathlib.Path('second').exists():\n"
        "    pathlib.Path('second').touch(); print('up', flush=True); time.sleep(300)\n" + STEP + CHECKPOINT,
        max_attempts=2,
    )
    ended: list[BaseException | None] = []

    def follow() -> None:
        try:
            list(run.stream())
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    follower = threading.Thread(target=follow)
    follower.start()
    wait_for(lambda: said(run.directory, "up"))
    os.kill(supervisor(run.directory), signal.SIGKILL)
    follower.join(30)
    assert ended == [None]
    assert (run.directory.record().state, run.directory.record().attempt) == (RunState.SUCCEEDED, 2)


def test_checkpoints_of_another_model_are_not_gone_on_from(tmp_path: Path) -> None:
    """Case O40."""
    step = tmp_path / "step_3"
    step.mkdir()
    (step / "training_info.json").write_text("{}")
    config = {"policy": {"model_name": "a", "train_global_batch_size": 4}, "data": {"train": {"data_path": "x"}}}
    (step / "config.yaml").write_text(yaml.safe_dump(config))
    refuse_other_training(tmp_path, config)
    with pytest.raises(CheckpointMismatchError, match=r"checkpoint_mismatch.*step_3.*'a', now it is 'b'"):
        refuse_other_training(tmp_path, {**config, "policy": {**config["policy"], "model_name": "b"}})
    with pytest.raises(CheckpointMismatchError, match=r"data\.train"):
        refuse_other_training(tmp_path, {**config, "data": {"train": {"data_path": "y"}}})


def test_a_run_that_is_queued_again_forgets_its_end(place: Workplace) -> None:
    with pytest.raises(TrainingFailedError):
        run_to_end(place, "import os; os.kill(os.getpid(), 9)")
    (directory,) = place.runs.all()
    record = prepare_resume(directory, "dagster-2")
    assert (record.state, record.attempt, record.ended, record.failure) == (RunState.QUEUED, 2, None, None)
    assert record.dagster_run_id == "dagster-2" and not record.ended_for_good


def test_a_file_size_limit_in_the_middle_of_a_save_is_a_full_disk(place: Workplace) -> None:
    code = STEP + CHECKPOINT + "\nopen('checkpoints/tmp_weights', 'wb').write(bytes(50_000_000))"
    run = training(place, "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))\n" + code)
    with pytest.raises(TrainingFailedError, match="disk_full"):
        list(run.stream())
    record = run.directory.record()
    assert record.failure is not None and "File too large" in record.failure["line"]
    assert "prune" in record.failure["advice"]
    assert (run.directory.checkpoints / "step_1" / "training_info.json").exists()
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
