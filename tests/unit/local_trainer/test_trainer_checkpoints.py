"""Checkpoint folders: atomic, repaired after a kill, trimmed by NeMo-RL's rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from trainer_helpers import CONFIG, merged

from nvtrader_rl_dagster.local_trainer.checkpoints import (
    CheckpointSettings,
    CheckpointStore,
    check_metric_name,
    tracked_metric,
)
from nvtrader_rl_dagster.local_trainer.config import ConfigError, Section

METRIC = "val:validation-default_loss"


def store(folder: Path, **changes: object) -> CheckpointStore:
    config = merged(CONFIG, {f"checkpointing.{key}": value for key, value in changes.items()})
    config["checkpointing"]["checkpoint_dir"] = str(folder)
    return CheckpointStore(CheckpointSettings.from_config(Section(config).section("checkpointing")))


def marker(text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "state").mkdir() or ((folder / "state" / "marker").write_text(text) and None)  # type: ignore[func-returns-value]


def save(target: CheckpointStore, step: int, metric: float | None = None, text: str = "x") -> None:
    info = {"total_steps": step} | ({} if metric is None else {METRIC: metric})
    target.save(step, info, {"a": {"b": 1}}, marker(text))


@pytest.mark.parametrize(
    ("higher", "metrics", "kept"),
    [
        (False, {2: 0.5, 4: 0.1, 6: 0.3, 8: 0.9}, {4, 6, 8}),  # the best two and the latest
        (True, {2: 0.5, 4: 0.1, 6: 0.3, 8: 0.9}, {2, 8}),
        (False, {2: 0.1, 4: 0.1, 6: 0.1, 8: 0.9}, {4, 6, 8}),  # of equals the newer wins
        (False, {2: None, 4: 0.7, 6: 0.8, 8: 0.1}, {4, 8}),  # without a metric it ranks last
        (False, {2: 0.5, 4: float("nan"), 6: 0.6, 8: 0.7}, {2, 6, 8}),  # and so does one that is not a number
    ],
)
def test_the_best_k_and_the_latest_stay(
    tmp_path: Path,
    higher: bool,
    metrics: dict[int, float | None],
    kept: set[int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = store(tmp_path, keep_top_k=2, higher_is_better=higher)
    for step, metric in metrics.items():
        save(target, step, metric)
    assert set(target.steps()) == kept
    assert "due to being outside top-2" in capsys.readouterr().out


def test_without_a_metric_the_newest_k_stay_and_null_keeps_all(tmp_path: Path) -> None:
    newest, everything = (
        store(tmp_path / "a", keep_top_k=2, metric_name=None),
        store(tmp_path / "b", keep_top_k=None),
    )
    for step in (2, 9, 10, 11):
        save(newest, step)
        save(everything, step)
    assert set(newest.steps()) == {10, 11}
    assert set(everything.steps()) == {2, 9, 10, 11}
    assert newest.latest() == tmp_path / "a" / "step_11"


def test_a_step_is_replaced_as_a_whole(tmp_path: Path) -> None:
    target = store(tmp_path)
    save(target, 4, text="old")
    save(target, 4, text="new")
    assert (tmp_path / "step_4" / "state" / "marker").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["step_4"]


def test_an_unfinished_save_is_never_the_latest_and_is_removed(tmp_path: Path) -> None:
    target = store(tmp_path)
    save(target, 2)
    (tmp_path / "tmp_step_4").mkdir()
    (tmp_path / "step_final").mkdir()
    assert target.latest() == tmp_path / "step_2"
    target.repair()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_2", "step_final"]


def test_a_kill_between_the_two_renames_is_repaired(tmp_path: Path) -> None:
    target = store(tmp_path)
    save(target, 2)
    (tmp_path / "step_2").rename(tmp_path / "old_step_2")
    target.repair()
    assert target.latest() == tmp_path / "step_2"


def test_a_failing_save_leaves_the_previous_checkpoint(tmp_path: Path) -> None:
    target = store(tmp_path)
    save(target, 2, text="good")

    def fail(folder: Path) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        target.save(2, {}, {}, fail)
    assert (tmp_path / "step_2" / "state" / "marker").read_text() == "good"


def test_a_value_that_is_not_a_number_is_written_as_null_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(store(tmp_path), 2, float("nan"))
    assert json.loads((tmp_path / "step_2" / "training_info.json").read_text())[METRIC] is None
    assert f"null into training_info.json: {METRIC}" in capsys.readouterr().out


def test_the_metric_name_needs_a_prefix_and_a_known_metric() -> None:
    validation = {"validation-default_loss"}
    check_metric_name(None, {"loss"}, validation)
    check_metric_name(METRIC, {"loss"}, validation)
    check_metric_name("train:loss", {"loss"}, validation)
    check_metric_name(METRIC, {"loss"}, set())  # no validation set: the checkpoints have no metric
    for wrong in ("validation-default_loss", "val:loss", "train:validation-default_loss"):
        with pytest.raises(ConfigError, match=r"checkpointing\.metric_name"):
            check_metric_name(wrong, {"loss"}, validation)


def test_the_tracked_metric_is_kept_under_its_full_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert tracked_metric("train:loss", {"loss": 0.5}, {}) == {"train:loss": 0.5}
    assert tracked_metric(METRIC, {"loss": 0.5}, {"validation-default_loss": 0.4}) == {METRIC: 0.4}
    assert tracked_metric(METRIC, {"loss": 0.5}, {}) == {}
    assert "ranks last" in capsys.readouterr().out


@pytest.mark.parametrize(("text", "seconds"), [("00:03:45:00", 13500), ("01:00:00:01", 86401)])
def test_the_time_limit_is_days_hours_minutes_seconds(tmp_path: Path, text: str, seconds: int) -> None:
    assert store(tmp_path, checkpoint_must_save_by=text).settings.must_save_by == seconds
    with pytest.raises(ConfigError, match="DD:HH:MM:SS"):
        store(tmp_path, checkpoint_must_save_by=text[3:])
