"""`gpu_janitor` on real instances, with workers and code servers that are really killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import dagster as dg
import orjson
import psutil
import pytest
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._core.test_utils import create_test_daemon_workspace_context, load_remote_repo
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import PythonFileTarget
from dagster._daemon.auto_run_reexecution.event_log_consumer import EventLogConsumerDaemon

from nvtrader_rl_dagster.nemo_rl.processes import LAUNCH_VARIABLE, LEASE_VARIABLE
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.sensors import lost_runs
from nvtrader_rl_dagster.sensors.janitor import gpu_janitor

INSTANCE = Path(lost_runs.__file__).parents[1] / "instance" / "dagster.yaml"
JOBS = """
import time
from pathlib import Path
import dagster as dg

@dg.op(pool="gpu")
def train():
    try:
        time.sleep(600)
    finally:
        Path(__file__).with_name("cleaned").touch()

@dg.job(executor_def=dg.in_process_executor, tags={"dagster/max_retries": "1"})
def training():
    train()

defs = dg.Definitions(jobs=[training])
"""
NOTHING = "nothing left behind"


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """A persistent instance with the packaged settings."""
    folder = tmp_path / "dagster"
    folder.mkdir()
    (folder / "dagster.yaml").write_text(INSTANCE.read_text())
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        yield instance


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    file = tmp_path / "jobs.py"
    file.write_text(JOBS)
    return file


@pytest.fixture
def tick(instance: dg.DagsterInstance, tmp_path: Path) -> Callable[[], str]:
    """One tick of the sensor; what it did."""

    def evaluate() -> str:
        context = dg.build_sensor_context(instance=instance)
        said = gpu_janitor(context, artifacts=ArtifactStore(root=str(tmp_path / "home")))
        assert isinstance(said, dg.SkipReason)
        return said.skip_message or ""

    return evaluate


@pytest.fixture
def command_line_run(instance: dg.DagsterInstance, jobs: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A run that `dagster job execute` executes in one process, until its step holds the slot."""
    command = [sys.executable, "-m", "dagster", "job", "execute", "-f", str(jobs), "-j", "training"]
    environment = {**os.environ, "DAGSTER_HOME": instance.root_directory}
    worker = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        until(lambda: slots(instance))
        (run,) = instance.get_runs()
        yield run.run_id, worker
    finally:
        worker.kill()
        worker.wait()


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def slots(instance: dg.DagsterInstance) -> set[str]:
    """Runs that hold or await a slot of the pool."""
    storage = instance.event_log_storage
    if "gpu" not in storage.get_concurrency_keys():
        return set()
    info = storage.get_concurrency_info("gpu")
    return info.active_run_ids | info.pending_run_ids | info.assigned_run_ids


def status(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRunStatus:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run.status


def message_of(instance: dg.DagsterInstance, run_id: str, kind: dg.DagsterEventType) -> str:
    (event,) = instance.all_logs(run_id, of_type=kind)
    return event.message


def test_a_run_whose_worker_was_killed_fails_with_the_reason_and_frees_its_slot(
    instance: dg.DagsterInstance,
    command_line_run: tuple[str, subprocess.Popen[bytes]],
    tick: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lost_runs, "_PATIENCE_SECONDS", 0.0)
    run_id, worker = command_line_run
    assert tick() == NOTHING
    assert status(instance, run_id) is dg.DagsterRunStatus.STARTED

    worker.send_signal(signal.SIGKILL)
    until(lambda: psutil.Process(worker.pid).status() == psutil.STATUS_ZOMBIE)
    said = tick()
    assert said == f"Dagster run {run_id[:8]} is failed now: process {worker.pid} has ended and waits to be collected"
    assert status(instance, run_id) is dg.DagsterRunStatus.FAILURE
    assert f"process {worker.pid}" in message_of(instance, run_id, dg.DagsterEventType.RUN_FAILURE)
    assert slots(instance) == set()
    assert instance.get_run_by_id(run_id).tags["dagster/will_retry"] == "true"
    assert tick() == NOTHING


def test_a_cancel_reaches_a_worker_that_has_no_code_server_once(
    instance: dg.DagsterInstance, command_line_run: tuple[str, subprocess.Popen[bytes]], tick: Callable[[], str]
) -> None:
    run_id, worker = command_line_run
    instance.report_run_canceling(instance.get_run_by_id(run_id))
    os.kill(worker.pid, signal.SIGSTOP)
    assert tick() == f"Dagster run {run_id[:8]}: passed the cancel on to its worker (pid {worker.pid})"
    assert tick() == NOTHING
    os.kill(worker.pid, signal.SIGCONT)
    worker.wait(60)
    assert status(instance, run_id) is dg.DagsterRunStatus.CANCELED
    assert slots(instance) == set()


def test_a_canceling_run_whose_worker_is_gone_is_canceled_and_never_retried(
    instance: dg.DagsterInstance,
    command_line_run: tuple[str, subprocess.Popen[bytes]],
    tick: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lost_runs, "_PATIENCE_SECONDS", 0.0)
    run_id, worker = command_line_run
    instance.report_run_canceling(instance.get_run_by_id(run_id))
    worker.kill()
    worker.wait()
    assert tick() == f"Dagster run {run_id[:8]} is canceled now: there is no process {worker.pid}"
    assert status(instance, run_id) is dg.DagsterRunStatus.CANCELED
    assert slots(instance) == set()
    assert "dagster/will_retry" not in instance.get_run_by_id(run_id).tags


def test_a_run_lost_with_its_code_server_is_retried_by_dagster(
    instance: dg.DagsterInstance, jobs: Path, tick: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_runs, "_PATIENCE_SECONDS", 0.0)
    with code_location(instance, jobs) as workspace:
        list(EventLogConsumerDaemon().run_iteration(workspace))
        run_id, worker = launch(instance, workspace)
        server = worker.parent()
        assert server is not None
        server.kill()
        worker.kill()
        until(lambda: not psutil.pid_exists(worker.pid) or worker.status() == psutil.STATUS_ZOMBIE)
    assert status(instance, run_id) is dg.DagsterRunStatus.STARTED
    assert f"Dagster run {run_id[:8]} is failed now" in tick()

    with code_location(instance, jobs) as workspace:
        list(EventLogConsumerDaemon().run_iteration(workspace))
        retries = [run for run in instance.get_runs() if run.parent_run_id == run_id]
        assert [run.status for run in retries] == [dg.DagsterRunStatus.QUEUED]


def test_a_cancel_reaches_a_worker_whose_code_server_died(
    instance: dg.DagsterInstance, jobs: Path, tick: Callable[[], str]
) -> None:
    with code_location(instance, jobs) as workspace:
        run_id, worker = launch(instance, workspace)
        instance.report_run_canceling(instance.get_run_by_id(run_id))
        assert tick() == NOTHING  # a code server that lives does it
        server = worker.parent()
        assert server is not None
        server.kill()
        until(lambda: worker.parent() != server)
        assert tick() == f"Dagster run {run_id[:8]}: passed the cancel on to its worker (pid {worker.pid})"
        until(lambda: status(instance, run_id) is dg.DagsterRunStatus.CANCELED)
        assert jobs.with_name("cleaned").exists()


def test_a_run_whose_code_server_died_while_starting_fails_and_one_that_is_starting_is_left_alone(
    instance: dg.DagsterInstance, tick: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_runs, "_PATIENCE_SECONDS", 0.0)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "live"))
        server.listen()
        runs = {name: starting_run(instance, tmp_path / name) for name in ("live", "dead")}
        assert tick() == NOTHING  # both began a moment ago
        monkeypatch.setattr(lost_runs, "_BOOT_SECONDS", 0.0)
        assert (
            tick() == f"Dagster run {runs['dead'][:8]} is failed now: it was being started when its code server ended"
        )
    assert status(instance, runs["live"]) is dg.DagsterRunStatus.STARTING


def test_a_worker_on_another_machine_is_not_judged(
    instance: dg.DagsterInstance, tick: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_runs, "_BOOT_SECONDS", 0.0)
    run_id = starting_run(instance, None)
    assert tick() == NOTHING
    assert status(instance, run_id) is dg.DagsterRunStatus.STARTING


@pytest.mark.parametrize("deleted", [True, False])
def test_a_slot_held_by_a_deleted_or_ended_run_is_freed(
    instance: dg.DagsterInstance, tick: Callable[[], str], deleted: bool
) -> None:
    holder, waiting = (instance.create_run_for_job(same_job, status=dg.DagsterRunStatus.STARTED) for _ in range(2))
    storage = instance.event_log_storage
    storage.initialize_concurrency_limit_to_default("gpu")
    if deleted:
        # Deleting frees what the run holds then; its worker, which lives on, claims the slot afterwards.
        instance.delete_run(holder.run_id)
    assert storage.claim_concurrency_slot("gpu", holder.run_id, "train").is_claimed
    assert not storage.claim_concurrency_slot("gpu", waiting.run_id, "train").is_claimed
    if not deleted:
        assert tick() == NOTHING
        instance.report_run_failed(holder)
    why = "deleted" if deleted else "failure"
    assert tick() == f"freed the slot of pool gpu held by run {holder.run_id[:8]} ({why})"
    assert storage.claim_concurrency_slot("gpu", waiting.run_id, "train").is_claimed
    assert tick() == NOTHING


def test_a_training_without_a_supervisor_is_ended(tick: Callable[[], str], tmp_path: Path) -> None:
    lease = ArtifactStore(root=str(tmp_path / "home")).home.lease
    environment = {**os.environ, LAUNCH_VARIABLE: "ab12", LEASE_VARIABLE: str(lease)}
    left = subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True)
    try:
        said = tick()
        assert f"killed sleep (pid {left.pid})" in said
        assert left.wait(10) == -signal.SIGKILL
        assert tick() == NOTHING
    finally:
        left.kill()


def test_a_part_that_fails_does_not_stop_the_others_and_the_tick_fails(
    instance: dg.DagsterInstance, tick: Callable[[], str], tmp_path: Path
) -> None:
    run = instance.create_run_for_job(same_job, status=dg.DagsterRunStatus.STARTED)
    instance.event_log_storage.initialize_concurrency_limit_to_default("gpu")
    assert instance.event_log_storage.claim_concurrency_slot("gpu", run.run_id, "train").is_claimed
    instance.report_run_failed(run)
    folder = ArtifactStore(root=str(tmp_path / "home")).runs.root / "dpo-20260101-000000-abcdef"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("not json")
    with pytest.raises(RuntimeError, match=r"trainings: .*freed the slot of pool gpu"):
        tick()
    assert slots(instance) == set()


@dg.op(pool="gpu")
def train() -> None: ...


@dg.job(name="training")
def same_job() -> None:
    """As in `JOBS`, to create runs of it."""
    train()


def starting_run(instance: dg.DagsterInstance, server: Path | None) -> str:
    """A run that was handed to a code server: the one at this socket, or one on another machine."""
    address = {"host": "localhost", "socket": str(server)} if server else {"host": "elsewhere", "port": 4000}
    run = instance.create_run_for_job(same_job, tags={GRPC_INFO_TAG: orjson.dumps(address).decode()})
    instance.report_dagster_event(
        dg.DagsterEvent(event_type_value=dg.DagsterEventType.RUN_STARTING.value, job_name="training"), run_id=run.run_id
    )
    assert status(instance, run.run_id) is dg.DagsterRunStatus.STARTING
    return run.run_id


def code_location(instance: dg.DagsterInstance, jobs: Path) -> AbstractContextManager[WorkspaceProcessContext]:
    """A real code server of these jobs, as the daemon starts it."""
    target = PythonFileTarget(
        python_file=str(jobs), attribute=None, working_directory=str(jobs.parent), location_name="jobs"
    )
    return create_test_daemon_workspace_context(target, instance)


def launch(instance: dg.DagsterInstance, workspace: WorkspaceProcessContext) -> tuple[str, psutil.Process]:
    """Launch the job as the daemon does, and wait until its step holds the slot; the run and its worker."""
    job = load_remote_repo(workspace, "__repository__").get_full_job("training")
    run = instance.create_run_for_job(
        same_job,
        tags={"dagster/max_retries": "1"},
        remote_job_origin=job.get_remote_origin(),
        job_code_origin=job.get_python_origin(),
    )
    instance.launch_run(run.run_id, workspace.create_request_context())
    until(lambda: slots(instance))
    (started,) = [e for e in instance.all_logs(run.run_id) if "Started process for run" in e.message]
    return run.run_id, psutil.Process(int(started.message.split("pid: ")[1].rstrip(").")))
