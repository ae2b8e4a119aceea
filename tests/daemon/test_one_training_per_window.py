"""Exactly one training for each window, whatever is killed, lost, renamed or repeated."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest
from daemon_loop import Box, Daemon, pair
from dagster._core.scheduler.instigation import TickStatus
from trigger_defs import RAISE_FILE

from nvtrader_rl_dagster.definitions import defs
from nvtrader_rl_dagster.feedback.events import undo
from nvtrader_rl_dagster.nemo_rl.runs import RunState
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.feedback import FeedbackResource
from nvtrader_rl_dagster.sensors import threshold
from nvtrader_rl_dagster.sensors.threshold import preference_threshold

STAGES = ["TICK_CREATED", "TICK_HELD", "RUN_IDS_RESERVED", "RUN_CREATED", "RUN_LAUNCHED"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_daemon_that_is_killed_within_a_tick_starts_one_training(box: Box, stage: str):
    box.add_pairs(60)
    box.killed_tick(stage)
    with box.daemon() as daemon:
        daemon.tick(2)
        assert daemon.windows() == [60]
        assert daemon.runs()[0].status is dg.DagsterRunStatus.QUEUED
        assert box.cursor(daemon).fired == 60


def test_an_exception_after_the_yield_starts_nothing_and_the_next_tick_does(box: Box):
    box.add_pairs(60)
    (box.root / RAISE_FILE).touch()
    with box.daemon(definitions="raising") as daemon:
        assert daemon.tick().status is TickStatus.FAILURE
        assert daemon.windows() == [] and daemon.cursor_text() is None
        (box.root / RAISE_FILE).unlink()
        daemon.tick(2)
        assert daemon.windows() == [60]


def test_a_burst_of_ten_thresholds_is_one_training(box: Box, daemon: Daemon):
    box.add_pairs(500)
    daemon.tick(2)
    assert daemon.windows() == [500]


def test_what_arrives_during_a_training_is_one_more_training_after_it(box: Box, daemon: Daemon):
    box.add_pairs(60)
    daemon.tick()
    box.add_pairs(300)
    run = daemon.started(daemon.runs()[0])
    assert daemon.tick().skip_reason == f"300 of 50 usable pairs; run {run.run_id[:8]} in progress"
    box.add_pairs(200)
    daemon.tick(2)
    assert daemon.windows() == [60]
    daemon.succeeded(run)
    daemon.tick(2)
    assert daemon.windows() == [60, 560]


def test_the_skip_reason_says_where_it_stands(box: Box, daemon: Daemon):
    assert daemon.tick().skip_reason == "0 of 50 usable pairs; no feedback was stored yet"
    box.add_pairs(60)
    daemon.tick()
    box.add_pairs(37)
    (run,) = daemon.runs()
    assert daemon.tick().skip_reason == f"37 of 50 usable pairs; run {run.run_id[:8]} in progress"
    daemon.succeeded(run)
    assert daemon.tick().skip_reason == "37 of 50 usable pairs"


@pytest.mark.parametrize("ended", [False, True], ids=["in flight", "trained"])
def test_a_wiped_cursor_does_not_train_again(box: Box, daemon: Daemon, ended: bool):
    box.add_pairs(60)
    daemon.tick()
    if ended:
        daemon.succeeded(daemon.runs()[0])
    daemon.wipe_cursor()
    daemon.tick(2)
    assert daemon.windows() == [60]
    if not ended:
        daemon.succeeded(daemon.runs()[0])
    box.add_pairs(50)
    daemon.tick(2)
    assert daemon.windows() == [60, 110]


@pytest.mark.parametrize("ended", [False, True], ids=["in flight", "trained"])
def test_a_renamed_code_location_does_not_train_again(box: Box, ended: bool):
    box.add_pairs(60)
    with box.daemon() as daemon:
        daemon.tick()
        if ended:
            daemon.succeeded(daemon.runs()[0])
    with box.daemon(location="another name") as renamed:
        renamed.tick(2)
        assert renamed.windows() == [60]
        if not ended:
            renamed.succeeded(renamed.runs()[0])
        box.add_pairs(50)
        renamed.tick(2)
        assert renamed.windows() == [60, 110]


def test_a_wiped_dagster_home_does_not_train_again(box: Box):
    box.add_pairs(60)
    with box.daemon() as daemon:
        daemon.tick()
        daemon.succeeded(daemon.runs()[0])
    shutil.rmtree(box.root / "dagster")
    box.add_pairs(49)
    with box.daemon() as fresh:
        assert fresh.tick(2).skip_reason == "49 of 50 usable pairs"
        box.add_pairs(1)
        fresh.tick(2)
        assert fresh.windows() == [110]


def test_a_wiped_dagster_home_forgets_no_training_that_still_runs(box: Box):
    box.add_pairs(60)
    with box.daemon() as daemon:
        daemon.tick()
        directory = daemon.training(daemon.started(daemon.runs()[0]), RunState.RUNNING, ended=False)
    shutil.rmtree(box.root / "dagster")
    box.add_pairs(70)
    with box.daemon() as fresh:
        said = fresh.tick(2).skip_reason
        assert said == f"70 of 50 usable pairs; training {directory.run_id} in progress"
        assert fresh.windows() == []


def test_a_deleted_run_is_not_started_again(box: Box, daemon: Daemon):
    box.add_pairs(60)
    daemon.tick()
    daemon.instance.delete_run(daemon.runs()[0].run_id)
    box.add_pairs(49)
    assert daemon.tick(2).skip_reason == "49 of 50 usable pairs"
    assert daemon.windows() == []
    box.add_pairs(1)
    daemon.tick(2)
    assert daemon.windows() == [110]


def test_the_same_sixty_pairs_seen_twice_are_one_training(box: Box, daemon: Daemon):
    box.add_pairs(60)
    keys = []
    for _ in range(2):
        context = dg.build_sensor_context(instance=daemon.instance, cursor=None)
        result = preference_threshold(context, feedback=FeedbackResource(), artifacts=ArtifactStore())
        keys += [request.run_key for request in result.run_requests]
    assert len(keys) == 2 and len(set(keys)) == 1
    daemon.tick(2)
    assert daemon.windows() == [60] and daemon.runs()[0].tags["dagster/run_key"] == keys[0]


def test_nothing_starts_while_a_retry_of_the_same_window_is_pending_or_runs(box: Box, daemon: Daemon):
    box.add_pairs(60)
    daemon.tick()
    crashed = daemon.crashed(daemon.runs()[0])
    assert crashed.is_complete_and_waiting_to_retry
    box.add_pairs(60)
    said = daemon.tick(2).skip_reason
    assert said == f"60 of 50 usable pairs; a retry of run {crashed.run_id[:8]} in progress"
    retry = daemon.retried(crashed)
    daemon.tick(2)
    assert retry.parent_run_id == crashed.run_id and daemon.windows() == [60, 60]
    daemon.succeeded(retry)
    daemon.tick(2)
    assert daemon.windows() == [60, 60, 120]


def test_a_retry_that_never_comes_does_not_block_for_ever(box: Box, daemon: Daemon, monkeypatch: pytest.MonkeyPatch):
    box.add_pairs(60)
    daemon.tick()
    daemon.crashed(daemon.runs()[0])
    box.add_pairs(10)
    monkeypatch.setattr("nvtrader_rl_dagster.sensors.standing.time.time", lambda: daemon.now + 3000)
    daemon.tick()
    assert daemon.windows() == [60]
    monkeypatch.setattr("nvtrader_rl_dagster.sensors.standing.time.time", lambda: daemon.now + 4000)
    daemon.tick()
    assert daemon.windows() == [60, 70]


def test_a_new_store_in_the_place_of_the_old_one_counts_from_its_beginning(box: Box, daemon: Daemon):
    box.add_pairs(200)
    daemon.tick()
    daemon.succeeded(daemon.runs()[0])
    daemon.tick()
    for file in box.root.glob("feedback.db*"):
        file.unlink()
    box.add_pairs(60)
    daemon.tick(2)
    assert daemon.windows() == [200, 60]
    first, second = (run.tags["dagster/run_key"].split(":")[0] for run in daemon.runs())
    assert first != second and box.cursor(daemon).ledger_id == second


def test_pairs_that_were_undone_again_start_nothing(box: Box, daemon: Daemon):
    box.add_pairs(49)
    daemon.tick()
    box.add(*(pair(n) for n in range(100, 106)), *(undo(f"pair-{n}") for n in range(10)))
    assert daemon.tick().skip_reason == "45 of 50 usable pairs"
    assert daemon.windows() == []


def test_a_long_backlog_is_counted_over_several_ticks_and_is_one_training(
    box: Box, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(threshold, "EVENTS_PER_TICK", 100)
    box.add_pairs(250)
    assert daemon.tick().skip_reason == "100 of 50 usable pairs; counted up to event 100 of 250"
    daemon.tick(4)
    assert daemon.windows() == [250]


def test_a_training_that_somebody_else_started_is_waited_for(box: Box, daemon: Daemon):
    box.add_pairs(60)
    run = dg.DagsterRun("by_hand", tags={"nvtrader/window": "another store:9"})
    directory = daemon.training(run, RunState.RUNNING, ended=False)
    said = daemon.tick().skip_reason
    assert said == f"60 of 50 usable pairs; training {directory.run_id} in progress"
    directory.update(state=RunState.SUCCEEDED, ended="2026-01-01T00:00:00.000Z")
    daemon.tick(2)
    assert daemon.windows() == [60]


def test_a_training_whose_processes_are_gone_is_not_waited_for(box: Box, daemon: Daemon):
    box.add_pairs(60)
    directory = daemon.training(
        dg.DagsterRun("by_hand", tags={"nvtrader/window": "another store:9"}), RunState.RUNNING, ended=False
    )
    directory.update(creator=None)
    daemon.tick(2)
    assert daemon.windows() == [60]


def test_a_temporary_dagster_home_starts_nothing_and_says_how_to_get_a_lasting_one(box: Box):
    box.add_pairs(60)
    temporary = box.root / ".tmp_dagster_home_abc"
    (temporary).mkdir(parents=True)
    shutil.copy(Path(threshold.__file__).parents[1] / "instance" / "dagster.yaml", temporary)
    with dg.DagsterInstance.from_config(str(temporary)) as instance, dg.DagsterInstance.ephemeral() as in_memory:
        for forgetful in (instance, in_memory):
            context = dg.build_sensor_context(instance=forgetful)
            result = preference_threshold(context, feedback=FeedbackResource(), artifacts=ArtifactStore())
            assert isinstance(result, dg.SkipReason)
            assert "nvtrader-rl up" in result.skip_message and "again" in result.skip_message


def test_a_setting_that_is_no_number_is_named(box: Box, daemon: Daemon, monkeypatch: pytest.MonkeyPatch):
    box.add_pairs(60)
    monkeypatch.setenv("PREFERENCE_THRESHOLD", "abc")
    assert "PREFERENCE_THRESHOLD='abc' must be a whole number" in daemon.tick().skip_reason
    assert daemon.windows() == []


def test_without_feedback_no_file_is_made(box: Box, daemon: Daemon):
    daemon.tick()
    assert not list(box.root.glob("feedback.db*"))


def test_the_product_runs_both_sensors_by_default():
    running = {s.name for s in defs.sensors or [] if s.default_status is dg.DefaultSensorStatus.RUNNING}
    assert {preference_threshold.name, "training_failed"} <= running
