"""Run records and checkpoint folders: whole, in order, and never a half-written one."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from nvtrader_rl_dagster import files
from nvtrader_rl_dagster.nemo_rl.checkpoints import complete_checkpoints, newest_checkpoint
from nvtrader_rl_dagster.nemo_rl.runs import RunState, RunStore


def test_a_run_is_recorded_from_its_creation_on(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    run = store.create("dpo", "local", data_hash="d")
    assert run.record().state is RunState.QUEUED and run.record().data_hash == "d"
    run.update(state=RunState.RUNNING, started="2026-01-01T00:00:00.000Z")
    assert store.get(run.run_id).record().state is RunState.RUNNING
    assert json.loads((run.path / "run.json").read_text())["state"] == "running"


def test_runs_are_listed_newest_first_and_debris_is_passed_over(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    assert list(store.all()) == []
    for name in ("dpo-20260101-000000-aaaaaa", "sft-20260301-000000-bbbbbb", "dpo-20260201-000000-cccccc"):
        (tmp_path / name).mkdir()
        template = store.create("dpo", "local").record()
        (tmp_path / name / "run.json").write_text(
            json.dumps({**asdict(template), "run_id": name, "algo": name[:3], "state": "succeeded"})
        )
    (tmp_path / "dpo-20270101-000000-dddddd").mkdir()
    (tmp_path / "notes").mkdir()
    ids = [run.run_id for run in store.all() if run.run_id[-6:] in ("aaaaaa", "bbbbbb", "cccccc", "dddddd")]
    assert ids == ["sft-20260301-000000-bbbbbb", "dpo-20260201-000000-cccccc", "dpo-20260101-000000-aaaaaa"]
    newest = store.newest("dpo")
    assert newest is not None and newest.run_id == "dpo-20260201-000000-cccccc"


@pytest.mark.parametrize("run_id", ["../../etc", "dpo-1", "", "dpo-20260101-000000-aaaaaa"])
def test_an_id_that_is_no_run_is_an_error_and_no_path(run_id: str, tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="no training run"):
        RunStore(tmp_path).get(run_id)


def make_step(folder: Path, name: str, complete: bool = True) -> None:
    (folder / name).mkdir(parents=True)
    if complete:
        (folder / name / "training_info.json").write_text("{}")


def test_only_complete_checkpoints_count_and_ten_comes_after_nine(tmp_path: Path) -> None:
    for name in ("step_9", "step_10", "tmp_step_11", "old_step_9", "step_x"):
        make_step(tmp_path, name)
    make_step(tmp_path, "step_12", complete=False)
    assert [c.step for c in complete_checkpoints(tmp_path)] == [9, 10]
    newest = newest_checkpoint(tmp_path)
    assert newest is not None and newest.path.name == "step_10"


def test_no_folder_means_no_checkpoint(tmp_path: Path) -> None:
    assert complete_checkpoints(tmp_path / "none") == [] and newest_checkpoint(tmp_path) is None


def test_a_checkpoint_without_hugging_face_weights_says_so(tmp_path: Path) -> None:
    make_step(tmp_path, "step_1")
    (checkpoint,) = complete_checkpoints(tmp_path)
    with pytest.raises(FileNotFoundError, match="no Hugging Face weights"):
        _ = checkpoint.huggingface


def write_version(text: str, note: str):  # type: ignore[no-untyped-def]
    def write(folder: Path) -> dict[str, str]:
        (folder / "rows").write_text(text)
        (folder / "report").write_text(note)
        return {"note": note}

    return write


def test_equal_content_keeps_its_version_while_the_report_follows(tmp_path: Path) -> None:
    first = files.publish(tmp_path, write_version("a", "one"), ["rows"])
    second = files.publish(tmp_path, write_version("a", "two"), ["rows"])
    assert first.data_version == second.data_version and first.path == second.path
    assert (second.path / "report").read_text() == "two" and second.manifest["note"] == "two"


def test_other_content_is_another_folder_and_the_old_one_stays(tmp_path: Path) -> None:
    first = files.publish(tmp_path, write_version("a", "one"), ["rows"])
    second = files.publish(tmp_path, write_version("b", "two"), ["rows"])
    assert (first.path / "rows").read_text() == "a"
    found = files.current(tmp_path)
    assert found is not None and found.path == second.path


def test_a_writer_that_fails_leaves_the_published_version_alone(tmp_path: Path) -> None:
    first = files.publish(tmp_path, write_version("a", "one"), ["rows"])

    def broken(folder: Path) -> dict[str, str]:
        (folder / "rows").write_text("half")
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        files.publish(tmp_path, broken, ["rows"])
    found = files.current(tmp_path)
    assert found is not None and found.data_version == first.data_version
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([first.data_version, "current.json"])


def test_nothing_published_is_none(tmp_path: Path) -> None:
    assert files.current(tmp_path / "none") is None


def test_a_broken_json_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run\.json is not valid JSON"):
        files.read_json(tmp_path / "run.json")
