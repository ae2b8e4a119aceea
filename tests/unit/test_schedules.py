"""When the nightly loop starts and when it leaves a window to others; real stores and a persistent instance."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from nvtrader_rl_dagster import schedules
from nvtrader_rl_dagster.definitions import defs
from nvtrader_rl_dagster.feedback.store import FeedbackStore
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.feedback import FeedbackResource
from nvtrader_rl_dagster.sensors.standing import MAX_RETRIES_TAG, THRESHOLD_TAG, WINDOW_TAG
from nvtrader_rl_dagster.sensors.threshold import preference_threshold
from tests.loop import clear_preferences, import_into

SETTINGS = Path(schedules.__file__).parent / "instance" / "dagster.yaml"
Adding = Callable[[int], None]


@pytest.fixture(scope="module")
def empty_instance(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a persistent instance with the packaged settings: nothing starts by itself on another."""
    folder = tmp_path_factory.mktemp("instance")
    (folder / "dagster.yaml").write_text(SETTINGS.read_text())
    with dg.DagsterInstance.from_config(str(folder)) as made:
        made.get_run_records(limit=1)
    return folder


@pytest.fixture
def instance(empty_instance: Path, tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    folder = shutil.copytree(empty_instance, tmp_path / "dagster")
    with dg.DagsterInstance.from_config(str(folder)) as made:
        yield made


@pytest.fixture
def have(home: Path, tmp_path: Path) -> Adding:
    """`have(n)`: the store then holds n usable pairs."""
    return lambda pairs: import_into(home, clear_preferences(tmp_path / "feedback.jsonl", pairs)) and None


def night(instance: dg.DagsterInstance) -> dg.RunRequest | str:
    """What the nightly schedule does now: its one request, or why it skips."""
    resources = {"feedback": FeedbackResource(), "artifacts": ArtifactStore()}
    context = dg.build_schedule_context(instance=instance, resources=resources)
    data = schedules.nightly_loop.evaluate_tick(context)
    requests = data.run_requests or []
    assert len(requests) == (0 if data.skip_message else 1)
    return data.skip_message or requests[0]


def requested(instance: dg.DagsterInstance) -> dg.RunRequest:
    found = night(instance)
    assert isinstance(found, dg.RunRequest), found
    return found


def ledger(home: Path) -> str:
    store = FeedbackStore(Home(home).store_url)
    store.close()
    return store.ledger_id


def add_run(instance: dg.DagsterInstance, status: str, tags: dict[str, str] | None = None) -> str:
    run = dg.DagsterRun(
        "feedback_to_champion", run_id=str(uuid.uuid4()), status=dg.DagsterRunStatus(status), tags=tags or {}
    )
    instance.add_run(run)
    return run.run_id[:8]


def test_both_are_on_by_default_in_utc() -> None:
    found = {name: defs.resolve_schedule_def(name) for name in ("nightly_loop", "weekly_champion")}
    said = {name: (s.job_name, s.cron_schedule, s.execution_timezone) for name, s in found.items()}
    assert said == {
        "nightly_loop": ("feedback_to_champion", "0 2 * * *", "UTC"),
        "weekly_champion": ("champion_evaluation", "0 6 * * 0", "UTC"),
    }
    assert {s.default_status for s in found.values()} == {dg.DefaultScheduleStatus.RUNNING}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("30 3 * * 1-5", "30 3 * * 1-5"),
        ("", "0 2 * * *"),
        ("at night", "NVTRADER_RL_NIGHTLY='at night' must be a cron line of five fields, such as '0 2 * * *'"),
        ("0 0 2 * * *", "NVTRADER_RL_NIGHTLY='0 0 2 * * *' must be a cron line of five fields"),
    ],
)
def test_the_time_comes_from_the_environment_and_a_wrong_one_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    monkeypatch.setenv("NVTRADER_RL_NIGHTLY", line)
    try:
        found = schedules._cron("NVTRADER_RL_NIGHTLY", "0 2 * * *")
    except ValueError as error:
        found = str(error)
    assert found.startswith(said)


def test_it_requests_the_same_window_as_the_sensor_would_under_a_key_of_its_own(
    instance: dg.DagsterInstance, home: Path, have: Adding, monkeypatch: pytest.MonkeyPatch
) -> None:
    have(12)
    request = requested(instance)
    assert request.tags[WINDOW_TAG] == f"{ledger(home)}:12" and request.tags[THRESHOLD_TAG] == "10"
    assert request.run_key == f"nightly:{ledger(home)}:12"
    monkeypatch.setenv("PREFERENCE_THRESHOLD", "12")
    resources = {"feedback": FeedbackResource(), "artifacts": ArtifactStore()}
    tick = preference_threshold.evaluate_tick(dg.build_sensor_context(instance=instance, resources=resources))
    (by_sensor,) = tick.run_requests or []
    assert request.run_config == by_sensor.run_config
    assert request.run_key != by_sensor.run_key
    for tag in (WINDOW_TAG, MAX_RETRIES_TAG):
        assert request.tags[tag] == by_sensor.tags[tag]
    assert dg.validate_run_config(defs.resolve_job_def("feedback_to_champion"), dict(request.run_config))


def test_below_the_number_of_the_night_it_says_where_it_stands(instance: dg.DagsterInstance, have: Adding) -> None:
    have(9)
    assert night(instance) == "9 of 10 usable pairs"
    have(10)
    assert requested(instance).run_key


def test_the_number_of_the_night_is_its_own(
    instance: dg.DagsterInstance, have: Adding, monkeypatch: pytest.MonkeyPatch
) -> None:
    have(4)
    monkeypatch.setenv("NVTRADER_RL_NIGHTLY_PAIRS", "4")
    assert requested(instance).tags[THRESHOLD_TAG] == "4"
    monkeypatch.setenv("NVTRADER_RL_NIGHTLY_PAIRS", "few")
    assert "NVTRADER_RL_NIGHTLY_PAIRS='few' must be a whole number" in str(night(instance))


def test_without_feedback_nothing_is_made(instance: dg.DagsterInstance, home: Path) -> None:
    assert night(instance) == "0 of 10 usable pairs; no feedback was stored yet"
    assert not home.exists()


def test_it_refuses_a_temporary_instance(empty_instance: Path, tmp_path: Path, have: Adding) -> None:
    have(12)
    folder = shutil.copytree(empty_instance, tmp_path / ".tmp_dagster_home_1")
    with dg.DagsterInstance.from_config(str(folder)) as forgetful:
        assert "start with `nvtrader-rl up`" in str(night(forgetful))


@pytest.mark.parametrize("status", ["NOT_STARTED", "STARTED", "CANCELING"])
def test_nothing_starts_while_a_training_is_in_flight(instance: dg.DagsterInstance, have: Adding, status: str) -> None:
    have(12)
    run = add_run(instance, status)
    assert night(instance) == f"12 of 10 usable pairs; run {run} in progress"


@pytest.mark.parametrize("status", ["SUCCESS", "CANCELED"])
def test_a_window_that_the_sensor_requested_is_not_requested_again(
    instance: dg.DagsterInstance, home: Path, have: Adding, status: str
) -> None:
    have(12)
    add_run(instance, status, {WINDOW_TAG: f"{ledger(home)}:12"})
    assert night(instance) == "0 of 10 usable pairs"
    have(21)
    assert night(instance) == "9 of 10 usable pairs"
    have(22)
    assert requested(instance).tags[WINDOW_TAG].endswith(f"{ledger(home)}:{last_seq(home)}")


def last_seq(home: Path) -> int:
    store = FeedbackStore(Home(home).store_url)
    try:
        return store.last_seq()
    finally:
        store.close()


def test_after_a_failed_window_it_waits_for_newer_pairs(
    instance: dg.DagsterInstance, home: Path, have: Adding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVTRADER_RL_RETRY_PAIRS", "3")
    have(12)
    add_run(instance, "FAILURE", {WINDOW_TAG: f"{ledger(home)}:12", "dagster/will_retry": "false"})
    assert "12 of 10 usable pairs; 0 of 3 newer than the window that failed" in str(night(instance))
    have(15)
    assert requested(instance).tags[WINDOW_TAG] == f"{ledger(home)}:{last_seq(home)}"


def test_what_cannot_be_counted_in_a_tick_belongs_to_the_next_window(
    instance: dg.DagsterInstance, home: Path, have: Adding, monkeypatch: pytest.MonkeyPatch
) -> None:
    have(30)
    monkeypatch.setattr(schedules, "EVENTS_PER_TICK", 11)
    monkeypatch.setattr(schedules, "COUNTING_SECONDS", 0.0)
    request = requested(instance)
    assert request.tags[WINDOW_TAG] == f"{ledger(home)}:11"
    assert json.loads(json.dumps(request.run_config))["ops"]["preference_pairs"]["config"] == {"through_seq": 11}
    add_run(instance, "SUCCESS", {WINDOW_TAG: request.tags[WINDOW_TAG]})
    assert requested(instance).tags[WINDOW_TAG] == f"{ledger(home)}:22"


def test_an_older_copy_of_the_store_starts_nothing(instance: dg.DagsterInstance, home: Path, have: Adding) -> None:
    have(12)
    add_run(instance, "SUCCESS", {WINDOW_TAG: f"{ledger(home)}:500"})
    assert "event 500 was requested but the store ends at 12" in str(night(instance))


def test_the_definitions_load_without_the_store() -> None:
    code = "import sys, nvtrader_rl_dagster.definitions\nprint('nvtrader_rl_dagster.feedback.store' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
