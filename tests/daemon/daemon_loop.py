"""The daemon's own sensor loop on a real SQLite instance, with a clock that jumps and trainings that are played."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
from dagster._core.events import DagsterEvent, JobFailureData, RunFailureReason
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.remote_representation.external import RemoteSensor
from dagster._core.scheduler.instigation import InstigatorTick
from dagster._core.test_utils import freeze_time
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.auto_run_reexecution.auto_run_reexecution import consume_new_runs_for_automatic_reexecution
from dagster._daemon.sensor import execute_sensor_iteration

from nvtrader_rl_dagster.cli.up import packaged
from nvtrader_rl_dagster.feedback.events import FeedbackEvent, preference
from nvtrader_rl_dagster.feedback.store import FeedbackStore
from nvtrader_rl_dagster.feedback.trigger import Cursor, Window
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunState, RunStore, timestamp
from nvtrader_rl_dagster.sensors.standing import WINDOW_TAG
from nvtrader_rl_dagster.sensors.threshold import preference_threshold

LOCATION = "nvtrader_rl_dagster"
#: More than the sensors' minimum interval.
STEP = 20.0
_LOGGER = logging.getLogger("daemon_loop")


def pair(n: int) -> FeedbackEvent:
    return preference(f"prompt {n}", "good", "bad", event_id=f"pair-{n}")


@contextmanager
def dagster_instance(folder: Path) -> Iterator[dg.DagsterInstance]:
    """A persistent instance with the packaged settings. Runs are queued, and nobody takes them from the queue."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dagster.yaml").write_text(packaged("dagster.yaml").read_text(encoding="utf-8"))
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        yield instance


class Daemon:
    """One daemon process: an instance and a workspace with one code location."""

    def __init__(self, home: Path, now: float, location: str, definitions: str) -> None:
        self.home = Home(home)
        self.now = now
        self._folder = home / "dagster"
        self._location = location
        self._definitions = definitions

    def __enter__(self) -> Daemon:
        self._instance = dagster_instance(self._folder)
        self.instance = self._instance.__enter__()
        target = LoadableTargetOrigin(
            executable_path=sys.executable, module_name="trigger_defs", attribute=self._definitions
        )
        origin = InProcessCodeLocationOrigin(target, location_name=self._location)
        self.workspace = WorkspaceProcessContext(self.instance, InProcessWorkspaceLoadTarget(origin))
        self.workspace.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.workspace.__exit__(None, None, None)
        self._instance.__exit__(None, None, None)

    def tick(self, times: int = 1, crash_at: str | None = None) -> InstigatorTick:
        """Evaluate both sensors, some seconds later; the newest tick of the threshold sensor."""
        flags = {preference_threshold.name: {crash_at: signal.SIGKILL}} if crash_at else None
        for _ in range(times):
            self.now += STEP
            with freeze_time(self.now):
                list(execute_sensor_iteration(self.workspace, _LOGGER, None, None, debug_crash_flags=flags))
        return self.newest_tick(preference_threshold.name)

    def newest_tick(self, name: str) -> InstigatorTick:
        sensor = self.sensor(name)
        return self.instance.get_ticks(sensor.get_remote_origin_id(), sensor.selector_id, limit=1)[0]

    def sensor(self, name: str) -> RemoteSensor:
        (repository,) = (
            self.workspace.create_request_context().get_code_location(self._location).get_repositories().values()
        )
        return repository.get_sensor(name)

    def cursor_text(self) -> str | None:
        sensor = self.sensor(preference_threshold.name)
        state = self.instance.get_instigator_state(sensor.get_remote_origin_id(), sensor.selector_id)
        return state.instigator_data.cursor

    def wipe_cursor(self) -> None:
        sensor = self.sensor(preference_threshold.name)
        state = self.instance.get_instigator_state(sensor.get_remote_origin_id(), sensor.selector_id)
        self.instance.update_instigator_state(state.with_data(state.instigator_data._replace(cursor=None)))

    def runs(self) -> list[dg.DagsterRun]:
        """Runs of the job, oldest first."""
        return list(self.instance.get_runs(ascending=True))

    def windows(self) -> list[int]:
        """What the runs train: ends of their windows, oldest first. Each run key is the key of its window."""
        found = []
        for run in self.runs():
            window = Window.parse(run.tags[WINDOW_TAG])
            assert window is not None and run.tags["dagster/run_key"] == window.key
            assert run.run_config == {"ops": {"preference_pairs": {"config": {"through_seq": window.through_seq}}}}
            found.append(window.through_seq)
        return found

    # Trainings are played: the run's status and the run folder are set by hand.

    def started(self, run: dg.DagsterRun) -> dg.DagsterRun:
        for event in (dg.DagsterEventType.PIPELINE_STARTING, dg.DagsterEventType.RUN_START):
            self._report(run, event)
        return self._again(run)

    def training(
        self, run: dg.DagsterRun, state: RunState, code: str | None = None, ended: bool = True
    ) -> RunDirectory:
        window = Window.parse(run.tags[WINDOW_TAG])
        directory = RunStore(self.home.runs).create(
            "dpo",
            "local",
            ledger_id=window.ledger_id,
            trained_through_seq=window.through_seq,
            dagster_run_id=run.run_id,
        )
        failure = {"code": code, "line": f"the line of {code}", "advice": f"the advice for {code}"} if code else None
        directory.update(state=state, ended=timestamp() if ended else None, failure=failure)
        return directory

    def succeeded(self, run: dg.DagsterRun) -> dg.DagsterRun:
        self.training(self.started(run), RunState.SUCCEEDED)
        self._report(run, dg.DagsterEventType.RUN_SUCCESS)
        return self._again(run)

    def failed(self, run: dg.DagsterRun, code: str = "disk_full") -> dg.DagsterRun:
        """Its training fails, so its step fails."""
        self.training(self.started(run), RunState.FAILED, code)
        return self.step_failed(run)

    def step_failed(self, run: dg.DagsterRun) -> dg.DagsterRun:
        data = JobFailureData(error=None, failure_reason=RunFailureReason.STEP_FAILURE)
        with freeze_time(self.now):
            self.instance.report_run_failed(self.started(run), "Execution of run failed. Steps failed: x", data)
        return self._again(run)

    def crashed(self, run: dg.DagsterRun) -> dg.DagsterRun:
        """Its worker is gone, which Dagster retries."""
        with freeze_time(self.now):
            self.instance.report_run_failed(self.started(run), "Run worker ended unexpectedly")
        return self._again(run)

    def retried(self, run: dg.DagsterRun) -> dg.DagsterRun:
        """The retry that the daemon starts for a run that crashed."""
        record = self.instance.get_run_record_by_id(run.run_id)
        list(consume_new_runs_for_automatic_reexecution(self.workspace, [record], _LOGGER))
        return self.runs()[-1]

    def cancelled(self, run: dg.DagsterRun) -> dg.DagsterRun:
        with freeze_time(self.now):
            self.instance.report_run_canceled(run)
        return self._again(run)

    def messages(self, run: dg.DagsterRun) -> list[str]:
        return [event.message for event in self.instance.all_logs(run.run_id)]

    def _report(self, run: dg.DagsterRun, kind: dg.DagsterEventType) -> None:
        with freeze_time(self.now):
            self.instance.report_dagster_event(DagsterEvent(kind.value, run.job_name), run.run_id)

    def _again(self, run: dg.DagsterRun) -> dg.DagsterRun:
        found = self.instance.get_run_by_id(run.run_id)
        assert found is not None
        return found


class Box:
    """One machine: a state folder with its feedback store, and the daemons that are started on it."""

    def __init__(self, home: Path) -> None:
        self.root = home
        self.home = Home(home)
        self.now = time.time()

    @contextmanager
    def daemon(self, location: str = LOCATION, definitions: str = "normal") -> Iterator[Daemon]:
        with Daemon(self.root, self.now, location, definitions) as daemon:
            yield daemon
        self.now = daemon.now

    def add(self, *events: FeedbackEvent) -> None:
        store = FeedbackStore(self.home.store_url)
        store.append(events)
        store.close()

    def add_pairs(self, count: int) -> None:
        """That many usable pairs on prompts of their own."""
        store = FeedbackStore(self.home.store_url)
        first = store.last_seq()
        store.append(pair(first + n) for n in range(count))
        store.close()

    def killed_tick(self, stage: str) -> None:
        """A daemon that is killed at a stage of its tick."""
        server = multiprocessing.get_context("forkserver")
        server.set_forkserver_preload([__name__])
        child = server.Process(target=_tick_and_die, args=(dict(os.environ), self.root, self.now, stage))
        child.start()
        child.join(60)
        assert child.exitcode == -signal.SIGKILL
        self.now += STEP

    def cursor(self, daemon: Daemon) -> Cursor:
        store = FeedbackStore.existing(self.home.store_url)
        assert store is not None
        store.close()
        text = daemon.cursor_text()
        assert text is not None and len(text) < 300
        return Cursor.load(text, store.ledger_id)


def _tick_and_die(environment: dict[str, str], home: Path, now: float, stage: str) -> None:
    os.environ.update(environment)
    with Daemon(home, now, LOCATION, "normal") as daemon:
        daemon.tick(crash_at=stage)
