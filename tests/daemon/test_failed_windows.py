"""After a window that failed or was cancelled: when the next training starts, and what people find."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest
from daemon_loop import Box, Daemon

from nvtrader_rl_dagster.datasets.pair_files import write_pair_files
from nvtrader_rl_dagster.definitions import defs
from nvtrader_rl_dagster.feedback.store import FeedbackStore
from nvtrader_rl_dagster.feedback.trigger import Outcome, Request
from nvtrader_rl_dagster.files import read_json
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.run_windows import failed_request
from nvtrader_rl_dagster.nemo_rl.runs import RunState
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.sensors.failures import FAILURE_TAG, training_failed
from nvtrader_rl_dagster.sensors.standing import WINDOW_TAG


def test_a_failed_window_is_tried_again_with_the_pairs_that_are_newer_than_it(box: Box, daemon: Daemon):
    box.add_pairs(60)
    daemon.tick()
    daemon.failed(daemon.runs()[0])
    box.add_pairs(9)
    said = daemon.tick(2).skip_reason
    assert said == (
        "69 of 50 usable pairs; 9 of 10 newer than the window that failed (disk_full: the line of disk_full)"
    )
    assert daemon.windows() == [60]
    box.add_pairs(1)
    daemon.tick(2)
    assert daemon.windows() == [60, 70]


def test_the_pairs_of_a_failed_window_are_in_the_next_one(box: Box, daemon: Daemon):
    box.add_pairs(60)
    daemon.tick()
    daemon.failed(daemon.runs()[0])
    box.add_pairs(25)
    daemon.tick(2)
    (_, again) = daemon.runs()
    through = again.run_config["ops"]["preference_pairs"]["config"]["through_seq"]
    box.add_pairs(30)
    store = FeedbackStore(box.home.store_url)
    manifest = write_pair_files(store, box.root, through)
    store.close()
    assert manifest["through_seq"] == 85 and manifest["report"]["usable_pairs"] == 85


def test_windows_that_fail_again_and_again_never_repeat_themselves(box: Box, daemon: Daemon):
    box.add_pairs(60)
    daemon.tick()
    for _ in range(3):
        daemon.failed(daemon.runs()[-1])
        daemon.tick(2)
        box.add_pairs(10)
        daemon.tick(2)
    assert daemon.windows() == [60, 70, 80, 90]
    daemon.succeeded(daemon.runs()[-1])
    box.add_pairs(49)
    assert daemon.tick(2).skip_reason == "49 of 50 usable pairs"


def test_a_window_that_failed_before_its_training_is_noted_and_tried_again(box: Box, daemon: Daemon):
    box.add_pairs(60)
    daemon.tick()
    run = daemon.step_failed(daemon.runs()[0])
    daemon.tick()
    (note,) = box.home.failed_windows.iterdir()
    found = read_json(note)
    assert (found["window"], found["dagster_run_id"]) == (run.tags["nvtrader/window"], run.run_id)
    assert found["code"] == "run_failed" and "Steps failed: x" in found["line"] and run.run_id in found["advice"]
    box.add_pairs(9)
    assert "9 of 10 newer than the window that failed" in daemon.tick(2).skip_reason
    box.add_pairs(1)
    daemon.tick(2)
    assert daemon.windows() == [60, 70]


def test_the_note_of_a_failed_window_outlives_dagsters_memory(box: Box):
    box.add_pairs(60)
    with box.daemon() as daemon:
        daemon.tick()
        daemon.step_failed(daemon.runs()[0])
        daemon.tick()
    shutil.rmtree(box.root / "dagster")
    box.add_pairs(9)
    with box.daemon() as fresh:
        assert "9 of 10 newer than the window that failed (run_failed" in fresh.tick(2).skip_reason
        assert fresh.windows() == []
        box.add_pairs(1)
        fresh.tick(2)
        assert fresh.windows() == [70]


@pytest.mark.parametrize("before_training", [False, True])
def test_a_cancelled_window_counts_as_done(box: Box, daemon: Daemon, before_training: bool):
    box.add_pairs(60)
    daemon.tick()
    run = daemon.runs()[0]
    if not before_training:
        daemon.training(daemon.started(run), RunState.CANCELLED, "cancelled")
    daemon.cancelled(run)
    box.add_pairs(49)
    assert daemon.tick(2).skip_reason == "49 of 50 usable pairs"
    assert daemon.windows() == [60] and not box.home.failed_windows.exists()
    box.add_pairs(1)
    daemon.tick(2)
    assert daemon.windows() == [60, 110]


def test_a_window_that_was_cancelled_in_the_queue_stays_cancelled_without_the_cursor(box: Box, daemon: Daemon):
    box.add_pairs(60)
    daemon.tick()
    daemon.cancelled(daemon.runs()[0])
    daemon.wipe_cursor()
    box.add_pairs(49)
    assert daemon.tick(2).skip_reason == "49 of 50 usable pairs"


def test_a_cancelled_training_stays_cancelled_when_dagster_forgets_it(box: Box):
    box.add_pairs(60)
    with box.daemon() as daemon:
        daemon.tick()
        daemon.training(daemon.started(daemon.runs()[0]), RunState.CANCELLED, "cancelled")
    shutil.rmtree(box.root / "dagster")
    box.add_pairs(49)
    with box.daemon() as fresh:
        assert fresh.tick(2).skip_reason == "49 of 50 usable pairs"


def test_a_training_that_succeeded_is_done_although_its_run_failed_later(box: Box, daemon: Daemon):
    box.add_pairs(60)
    daemon.tick()
    run = daemon.started(daemon.runs()[0])
    daemon.training(run, RunState.SUCCEEDED)
    daemon.step_failed(run)  # the scoring, say
    box.add_pairs(49)
    assert daemon.tick(2).skip_reason == "49 of 50 usable pairs"
    assert daemon.windows() == [60] and not box.home.failed_windows.exists()
    assert daemon.instance.get_run_by_id(run.run_id).tags[FAILURE_TAG] == "run_failed"


def test_a_failed_run_says_why(box: Box, daemon: Daemon):
    box.add_pairs(60)
    daemon.tick()
    run = daemon.failed(daemon.runs()[0])
    daemon.tick(2)
    assert daemon.instance.get_run_by_id(run.run_id).tags[FAILURE_TAG] == "disk_full"
    (directory,) = box.home.runs.iterdir()
    said = [text for text in daemon.messages(run) if text.startswith("Failed (disk_full)")]
    assert said == [
        f"Failed (disk_full): the line of disk_full the advice for disk_full The whole log: {directory / 'log.jsonl'}"
    ]
    assert not box.home.failed_windows.exists()  # run.json says it


def test_the_error_of_the_step_that_failed_is_the_line_of_the_note(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NVTRADER_RL_STORE", "mysql://somewhere/feedback")
    with dg.DagsterInstance.ephemeral() as instance:
        result = defs.resolve_job_def("feedback_to_champion").execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey("preference_pairs")],
            tags={WINDOW_TAG: "store:60"},
            raise_on_error=False,
        )
        context = dg.build_run_status_sensor_context(
            training_failed.name, result.get_run_failure_event(), instance, result.dagster_run
        )
        training_failed(context.for_run_failure(), artifacts=ArtifactStore())
        assert instance.get_run_by_id(result.run_id).tags[FAILURE_TAG] == "step_failed"
    assert failed_request(Home(home).failed_windows, "store") == Request(
        60, Outcome.FAILED, "step_failed: preference_pairs: ValueError: unsupported feedback store 'mysql': "
        "use sqlite or postgresql"
    )  # fmt: skip


def test_a_run_that_dagster_retries_has_not_failed_yet(box: Box, daemon: Daemon):
    box.add_pairs(60)
    daemon.tick()
    crashed = daemon.crashed(daemon.runs()[0])
    daemon.tick()
    assert daemon.newest_tick("training_failed").skip_reason == f"Dagster retries run {crashed.run_id[:8]}"
    assert FAILURE_TAG not in daemon.instance.get_run_by_id(crashed.run_id).tags
    assert not box.home.failed_windows.exists()
    retry = daemon.step_failed(daemon.retried(crashed))
    daemon.tick(2)
    assert FAILURE_TAG in daemon.instance.get_run_by_id(retry.run_id).tags
    assert failed_request(box.home.failed_windows, box.cursor(daemon).ledger_id).through_seq == 60


def test_a_diagnosis_is_attached_once_even_if_its_sensor_starts_over(box: Box, daemon: Daemon):
    box.add_pairs(60)
    daemon.tick()
    run = daemon.failed(daemon.runs()[0])
    sensor = daemon.sensor("training_failed")
    state = daemon.instance.get_instigator_state(sensor.get_remote_origin_id(), sensor.selector_id)
    for _ in range(2):
        daemon.tick()
        now = daemon.instance.get_instigator_state(sensor.get_remote_origin_id(), sensor.selector_id)
        back = now.instigator_data._replace(cursor=state.instigator_data.cursor)
        daemon.instance.update_instigator_state(now.with_data(back))
    assert len([text for text in daemon.messages(run) if text.startswith("Failed (")]) == 1
