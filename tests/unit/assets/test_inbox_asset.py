"""The inbox in Dagster: the asset that imports, the sensor that starts it, and the loop that imports first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from nvtrader_rl_dagster.definitions import defs
from nvtrader_rl_dagster.feedback.store import FeedbackStore
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.sensors import inbox as sensor_module
from nvtrader_rl_dagster.sensors.inbox import INBOX_TAG
from tests.loop import clear_preferences, metadata, run_job


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def inbox(home: Path) -> Path:
    folder = Home(home).inbox
    folder.mkdir(parents=True)
    return folder


def drop(inbox: Path, name: str = "day.jsonl", prompts: int = 20, age: float = 1e9) -> Path:
    path = clear_preferences(inbox / name, prompts)
    os.utime(path, (age, age))
    return path


def import_job(instance: dg.DagsterInstance, tags: dict[str, str] | None = None) -> dg.ExecuteInProcessResult:
    job = defs.resolve_job_def("import_feedback")
    return job.execute_in_process(instance=instance, tags=tags, raise_on_error=False)


def tick(instance: dg.DagsterInstance) -> dg.RunRequest | str:
    """What the sensor does now: its one request, or why it skips."""
    context = dg.build_sensor_context(instance=instance, resources={"artifacts": ArtifactStore()})
    data = defs.resolve_sensor_def("feedback_inbox").evaluate_tick(context)
    requests = data.run_requests or []
    assert len(requests) == (0 if data.skip_message else 1)
    return data.skip_message or requests[0]


def request(instance: dg.DagsterInstance) -> dg.RunRequest:
    wanted = tick(instance)
    assert isinstance(wanted, dg.RunRequest), wanted
    return wanted


def table(said: dict[str, Any]) -> list[dict[str, Any]]:
    return [record.data for record in said["file_table"].records]


def test_the_asset_says_what_became_of_every_file(instance: dg.DagsterInstance, inbox: Path) -> None:
    drop(inbox)
    (inbox / "broken.jsonl").write_text('{"prompt": "q')
    os.utime(inbox / "broken.jsonl", (1e9, 1e9))
    (inbox / "upload.jsonl.part").write_text("")
    result = import_job(instance)
    assert result.success
    said = metadata(result, "imported_feedback")
    counted = {name: said[name] for name in ("files", "failed_files", "decisions", "new_events", "usable_pairs")}
    assert counted == {"files": 1, "failed_files": 1, "decisions": 21, "new_events": 20, "usable_pairs": 20}
    assert said["set_aside"] == 1
    assert [r.data for r in said["set_aside_by_reason"].records] == [{"reason": "truncated_json", "count": 1}]
    assert [(row["file"], row["became"], row["usable_pairs"], row["note"]) for row in table(said)] == [
        ("broken.jsonl", "failed", 0, "see broken.jsonl.error.txt beside it"),
        ("day.jsonl", "imported", 20, ""),
        ("upload.jsonl.part", "waits", 0, "still being written (by its name)"),
    ]
    assert said["first_problems"][0]["reason"] == "truncated_json"
    assert sorted(p.name for p in (inbox / "failed").iterdir()) == ["broken.jsonl", "broken.jsonl.error.txt"]


def test_a_missing_inbox_is_nothing_to_do_and_the_loop_goes_on(instance: dg.DagsterInstance, home: Path) -> None:
    result = run_job(instance, assets=["imported_feedback", "preference_pairs"])
    assert result.success and metadata(result, "imported_feedback")["files"] == 0
    assert metadata(result, "preference_pairs")["decisions"] == 0
    assert not Home(home).inbox.exists()


def test_a_loop_imports_what_is_ready_before_it_makes_pairs(instance: dg.DagsterInstance, inbox: Path) -> None:
    drop(inbox)
    result = run_job(instance, assets=["imported_feedback", "preference_pairs"])
    assert metadata(result, "preference_pairs")["usable_pairs"] == 20
    assert metadata(result, "preference_pairs")["through_seq"] == 20


def test_the_data_version_changes_with_the_store_only(instance: dg.DagsterInstance, inbox: Path) -> None:
    versions = []
    for name in ("first.jsonl", "same.jsonl"):
        drop(inbox, name)
        (event,) = import_job(instance).asset_materializations_for_node("imported_feedback")
        versions.append((event.tags or {})["dagster/data_version"])
    assert versions[0] == versions[1] and versions[0].endswith(":20")


def test_two_runs_at_once_import_every_file_once(inbox: Path) -> None:
    for n in range(10):
        drop(inbox, f"{n}.jsonl", prompts=4 * (n + 1))
    code = (
        "import json, dagster as dg\nfrom nvtrader_rl_dagster.definitions import defs\n"
        "print('ready', flush=True); input()\n"
        "result = defs.resolve_job_def('import_feedback').execute_in_process()\n"
        "(event,) = result.asset_materializations_for_node('imported_feedback')\n"
        "print(json.dumps({name: event.metadata[name].value for name in ('files', 'new_events')}))\n"
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for run in runs:
        assert run.stdout is not None and run.stdout.readline() == "ready\n"
    for run in runs:
        assert run.stdin is not None
        run.stdin.write("\n")
        run.stdin.flush()
    said = [json.loads(run.communicate(timeout=60)[0]) for run in runs]
    assert sum(one["files"] for one in said) == 10
    assert sum(one["new_events"] for one in said) == 40  # each file holds the ones before it
    assert FeedbackStore(Home.from_env().store_url).counts()["events"] == 40
    assert len(list((inbox / "imported").iterdir())) == 10


def test_the_sensor_is_on_and_starts_the_import_alone() -> None:
    sensor = defs.resolve_sensor_def("feedback_inbox")
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING and sensor.minimum_interval_seconds == 15
    assert sensor.job_name == "import_feedback"
    assert [node.name for node in defs.resolve_job_def("import_feedback").nodes] == ["imported_feedback"]


def test_the_sensor_says_what_waits_and_why(instance: dg.DagsterInstance, home: Path) -> None:
    assert tick(instance) == f"there is no folder {Home(home).inbox}; nothing to import"
    Home(home).inbox.mkdir(parents=True)
    assert tick(instance) == "the inbox is empty"
    (Home(home).inbox / "more").mkdir()
    with drop(Home(home).inbox).open("ab"):
        assert tick(instance) == (
            "2 files, 1 still being written: day.jsonl (still being written (open in another program)), "
            "more (a folder, which is not entered; move its files up)"
        )


def test_ready_files_are_requested_once_whatever_else_waits(instance: dg.DagsterInstance, inbox: Path) -> None:
    drop(inbox)
    (inbox / "later.jsonl.part").write_text("")
    first = request(instance)
    assert first.tags[INBOX_TAG] == first.run_key and len(first.run_key or "") == 12
    assert request(instance).run_key == first.run_key
    drop(inbox, "another.jsonl")
    assert request(instance).run_key != first.run_key
    assert import_job(instance, first.tags).success
    skipped = tick(instance)
    assert isinstance(skipped, str) and skipped.startswith("1 file, 1 still being written: later.jsonl.part")


@pytest.mark.parametrize("status", ["NOT_STARTED", "STARTING", "STARTED", "CANCELING"])
def test_no_second_run_while_one_is_in_flight(instance: dg.DagsterInstance, inbox: Path, status: str) -> None:
    drop(inbox)
    run = dg.DagsterRun("import_feedback", run_id=str(uuid.uuid4()), status=dg.DagsterRunStatus(status))
    instance.add_run(run)
    assert tick(instance) == f"1 file, 0 still being written; run {run.run_id[:8]} is importing"


def test_files_that_a_failed_run_left_are_tried_again_later_under_a_new_key(
    instance: dg.DagsterInstance, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop(inbox)
    (inbox / "imported").write_text("in the way")
    first = request(instance)
    failed = import_job(instance, first.tags)
    failure = failed.failure_data_for_node("imported_feedback")
    assert failure is not None and failure.user_failure_data is not None
    assert f"must be able to read and write {inbox}" in str(failure.user_failure_data.description)
    skipped = tick(instance)
    assert isinstance(skipped, str)
    assert skipped.startswith(f"1 file, 0 still being written; run {failed.run_id[:8]} (FAILURE) left them here; again")
    monkeypatch.setattr(sensor_module, "RETRY_SECONDS", 0)
    second = request(instance)
    assert second.run_key == f"{first.run_key}-2" and second.tags == first.tags
    (inbox / "imported").unlink()
    result = import_job(instance, second.tags)
    assert result.success and metadata(result, "imported_feedback")["already_stored"] == 20
    assert tick(instance) == "the inbox is empty"
