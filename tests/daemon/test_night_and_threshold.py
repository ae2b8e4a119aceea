"""The daemon's own loops evaluate the nightly schedule, the threshold sensor and the inbox sensor on one instance."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import SensorInstigatorData, TickStatus
from dagster._core.test_utils import create_test_daemon_workspace_context, load_remote_repo
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster._daemon.sensor import execute_sensor_iteration
from dagster._scheduler.scheduler import launch_scheduled_runs

from nvtrader_rl_dagster import schedules
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.sensors.standing import WINDOW_TAG
from tests.loop import clear_preferences, import_into

SETTINGS = Path(schedules.__file__).parent / "instance" / "dagster.yaml"
pytestmark = pytest.mark.slow
LOGGER = logging.getLogger("dagster.daemon.test")


class Daemon:
    """Iterations of the two loops; runs are created and queued, and none is launched."""

    def __init__(self, context: WorkspaceProcessContext) -> None:
        self.context, self.instance = context, context.instance
        self._times: dict[str, Any] = {}
        self._day = 0

    def sensors(self) -> None:
        """Every sensor once, its interval taken as over."""
        for state in self.instance.all_instigator_state(instigator_type=InstigatorType.SENSOR):
            data = state.instigator_data
            if isinstance(data, SensorInstigatorData):
                data = data._replace(last_tick_timestamp=None, last_tick_start_timestamp=None)
                self.instance.update_instigator_state(state.with_data(data))
        list(execute_sensor_iteration(self.context, LOGGER, None, None))

    def night(self) -> str:
        """The next 02:00 passes; what the nightly schedule said, or "" when it started a run."""
        self._schedules()  # the first time only notes when the schedule was switched on
        self._day += 1
        self._schedules()
        tick = self.newest_tick("nightly_loop")
        assert tick.status in (TickStatus.SUCCESS, TickStatus.SKIPPED)
        return tick.tick_data.skip_reason or ""

    def newest_tick(self, name: str) -> Any:
        (state,) = [s for s in self.instance.all_instigator_state() if s.instigator_name == name]
        return self.instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)[0]

    def stop(self, sensor: str) -> None:
        remote = load_remote_repo(self.context, "__repository__").get_sensor(sensor)
        self.instance.stop_sensor(remote.get_remote_origin_id(), remote.selector_id, remote)

    def windows(self) -> list[str]:
        """The window of each training that was started, oldest first."""
        runs = self.instance.get_runs(dg.RunsFilter(job_name="feedback_to_champion"))
        return [run.tags[WINDOW_TAG].rpartition(":")[2] for run in reversed(runs)]

    def end_runs(self) -> None:
        for run in self.instance.get_runs():
            self.instance.report_run_canceled(run)

    def _schedules(self) -> None:
        end = datetime.now(timezone.utc) + timedelta(days=self._day)
        list(launch_scheduled_runs(self.context, LOGGER, end, self._times))


@pytest.fixture
def daemon(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    monkeypatch.setenv("PREFERENCE_THRESHOLD", "20")
    monkeypatch.setenv("NVTRADER_RL_WEEKLY", "0 0 29 2 *")
    folder = tmp_path / "dagster"
    folder.mkdir()
    (folder / "dagster.yaml").write_text(SETTINGS.read_text())
    target = ModuleTarget("nvtrader_rl_dagster.definitions", "defs", str(Path.cwd()), "nvtrader_rl_dagster")
    with (
        dg.DagsterInstance.from_config(str(folder)) as instance,
        create_test_daemon_workspace_context(target, instance) as context,
    ):
        yield Daemon(context)


def have(home: Path, pairs: int) -> None:
    import_into(home, clear_preferences(home.parent / "feedback.jsonl", pairs))


def test_sensor_and_schedule_never_start_one_window_twice(daemon: Daemon, home: Path) -> None:
    have(home, 15)
    daemon.sensors()
    assert daemon.windows() == []
    assert daemon.night() == "" and daemon.windows() == ["15"]
    # While it waits for the GPU nobody starts another one, neither by day nor by night.
    have(home, 40)
    daemon.sensors()
    assert "in progress" in daemon.newest_tick("preference_threshold").tick_data.skip_reason
    assert "in progress" in daemon.night() and daemon.windows() == ["15"]
    # It ends: the sensor takes what is newer, and the night finds nothing.
    daemon.end_runs()
    daemon.sensors()
    assert len(daemon.windows()) == 2
    daemon.end_runs()
    assert daemon.night() == "0 of 10 usable pairs" and len(daemon.windows()) == 2


def test_the_night_leaves_a_full_window_to_a_sensor_that_works_and_takes_it_from_one_that_is_off(
    daemon: Daemon, home: Path
) -> None:
    have(home, 5)
    daemon.sensors()
    have(home, 25)  # enough for the sensor, which is not asked before the night
    assert daemon.night() == "25 of 10 usable pairs; preference_threshold starts this one"
    daemon.stop("preference_threshold")
    assert daemon.night() == "" and len(daemon.windows()) == 1


def test_a_dropped_file_starts_one_import_and_no_training(daemon: Daemon, home: Path) -> None:
    inbox = Home(home).inbox
    file = clear_preferences(inbox / "day.jsonl", 30)
    daemon.sensors()
    assert daemon.newest_tick("feedback_inbox").tick_data.skip_reason.startswith("1 file, 1 still being written")
    os.utime(file, (0, 0))
    for _ in range(2):
        daemon.sensors()
    runs = daemon.instance.get_runs()
    assert [run.job_name for run in runs] == ["import_feedback"] and file.exists()
