"""A training step inside Dagster: cancelled from outside, and repeated after a crash."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from nvtrader_rl_dagster.assets.checkpoints import dpo_checkpoint
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.backends import Backend
from nvtrader_rl_dagster.nemo_rl.cancel import request_cancel
from nvtrader_rl_dagster.nemo_rl.configs import DpoOptions
from nvtrader_rl_dagster.nemo_rl.launch_files import ProcessRecord
from nvtrader_rl_dagster.nemo_rl.lease import lease_holder
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunState, RunStore
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.gb10 import GB10Resource
from nvtrader_rl_dagster.resources.training_step import pause
from tests.loop import clear_preferences, import_into, run_job

DATA = ["preference_pairs", "nemo_rl_dataset"]


@pytest.fixture
def ready(home: Path, tmp_path: Path) -> Path:
    """A state folder with a data set."""
    import_into(home, clear_preferences(tmp_path / "feedback.jsonl"))
    with dg.DagsterInstance.ephemeral() as instance:
        assert run_job(instance, assets=DATA).success
    return home


def when_it_trains(home: Path, act: Callable[[RunDirectory], None]) -> threading.Thread:
    """Do something from outside once the trainer has made a step."""

    def wait() -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            for directory in RunStore(Home(home).runs).all():
                if directory.metrics.exists() and b'"train"' in directory.metrics.read_bytes():
                    act(directory)
                    return
            time.sleep(0.05)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_a_cancel_from_outside_ends_the_dagster_run_as_canceled(ready: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        watcher = when_it_trains(ready, lambda directory: request_cancel(directory, "anna"))
        long = {"max_steps": 100_000, "epochs": 100_000}
        run_job(instance, long, assets=["dpo_checkpoint"])
        watcher.join()
        (run,) = instance.get_runs()
        assert run.status is dg.DagsterRunStatus.CANCELED
    (directory,) = RunStore(Home(ready).runs).all()
    record = directory.record()
    assert record.state is RunState.CANCELLED and record.failure is not None
    assert record.failure["line"] == "cancelled by anna"
    assert lease_holder(Home(ready).lease) is None


def test_a_killed_supervisor_is_survived_within_the_step(ready: Path) -> None:
    def kill(directory: RunDirectory) -> None:
        launch = ProcessRecord.read(directory.path)
        assert launch is not None
        os.kill(launch.supervisor.pid, signal.SIGKILL)

    with dg.DagsterInstance.ephemeral() as instance:
        watcher = when_it_trains(ready, kill)
        result = run_job(instance, {"epochs": 20, "max_steps": 30, "save_period": 4}, assets=["dpo_checkpoint"])
        watcher.join()
    assert result.success
    (directory,) = RunStore(Home(ready).runs).all()
    assert (directory.record().state, directory.record().attempt) == (RunState.SUCCEEDED, 2)


def test_a_week_of_training_gives_fewer_than_200_dagster_events() -> None:
    age, observations = 0.0, 0
    while age < 7 * 24 * 3600:
        age += pause(age, every=30)
        observations += 1
    assert observations < 180
    assert pause(60, every=30) == 30, "a young one is observed every 30 seconds"


def test_a_scoring_whose_supervisor_is_killed_is_done_again(copied: Path) -> None:
    (old,) = Home(copied).evals.iterdir()
    shutil.rmtree(old)

    def kill_once() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            launch = ProcessRecord.read(old)
            if launch is not None and launch.trainer is not None:
                os.kill(launch.supervisor.pid, signal.SIGKILL)
                return
            time.sleep(0.02)

    killer = threading.Thread(target=kill_once)
    killer.start()
    with dg.DagsterInstance.ephemeral() as instance:
        result = run_job(instance, assets=["eval_scores"])
    killer.join()
    launch = ProcessRecord.read(old)
    assert result.success and (old / "scores.json").exists()
    assert launch is not None and launch.attempt == 2


def test_a_run_limit_makes_the_trainer_save_before_it_is_over(ready: Path) -> None:
    written: list[dict[str, Any]] = []

    @dg.asset
    def prepared(context: dg.AssetExecutionContext, gb10: GB10Resource) -> None:
        run = gb10.train("dpo", DpoOptions(base_model="builtin:tiny"), context=context).run
        written.append(yaml.safe_load(run.directory.config.read_text()))

    device = GB10Resource(artifacts=ArtifactStore(), run_limit_minutes=90, grace_seconds=60)
    assert dg.materialize([prepared], resources={"gb10": device}).success
    assert written[0]["checkpointing"]["checkpoint_must_save_by"] == "00:01:29:00"


def test_a_backend_that_is_not_there_is_said_before_anything_is_made(ready: Path) -> None:
    device = GB10Resource(artifacts=ArtifactStore(), backend=Backend.NEMO_RL, nemo_rl_source=str(ready / "nowhere"))
    result = dg.materialize([dpo_checkpoint], resources={"gb10": device}, raise_on_error=False)
    (failure,) = result.get_step_failure_events()
    assert "examples/run_dpo.py is not there; set NVTRADER_NEMORL_SRC" in str(failure.event_specific_data)
    assert list(RunStore(Home(ready).runs).all()) == []
