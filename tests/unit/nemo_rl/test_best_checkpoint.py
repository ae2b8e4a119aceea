"""Which checkpoint is best: by the metric that the run tracks, and never by one that was not measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from nvtrader_rl_dagster.nemo_rl.checkpoints import Tracking, best_checkpoint, complete_checkpoints, newest_checkpoint

LOSS = "val:validation-default_loss"


def save(folder: Path, step: int, info: str | dict[str, Any], metric: str | None = LOSS, higher: bool = False) -> None:
    (folder / f"step_{step}").mkdir(parents=True)
    text = info if isinstance(info, str) else json.dumps(info)
    (folder / f"step_{step}" / "training_info.json").write_text(text)
    section = {"checkpointing": {"metric_name": metric, "higher_is_better": higher}}
    (folder / f"step_{step}" / "config.yaml").write_text(yaml.safe_dump(section))


def best_step(folder: Path) -> int | None:
    best = best_checkpoint(complete_checkpoints(folder))
    return best.step if best else None


def test_the_lowest_loss_wins_and_the_highest_accuracy(tmp_path: Path) -> None:
    for step, value in ((2, 0.5), (9, 0.2), (10, 0.4)):
        save(tmp_path / "loss", step, {LOSS: value})
        save(tmp_path / "accuracy", step, {"val:accuracy": value}, "val:accuracy", higher=True)
    assert best_step(tmp_path / "loss") == 9
    assert best_step(tmp_path / "accuracy") == 2


def test_of_equal_ones_the_newer_wins_by_number_and_not_by_name(tmp_path: Path) -> None:
    for step in (9, 10, 1):
        save(tmp_path, step, {LOSS: 0.5})
    assert best_step(tmp_path) == 10


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "null", "true", '"0.1"'])
@pytest.mark.parametrize("higher", [False, True])
def test_what_is_no_finite_number_never_wins(value: str, higher: bool, tmp_path: Path) -> None:
    save(tmp_path, 1, {LOSS: 0.7}, higher=higher)
    save(tmp_path, 2, f'{{"{LOSS}": {value}}}', higher=higher)
    save(tmp_path, 3, "{}", higher=higher)
    assert best_step(tmp_path) == 1


def test_nothing_measured_or_nothing_tracked_means_no_best_one(tmp_path: Path) -> None:
    assert best_step(tmp_path / "none") is None
    save(tmp_path / "nan", 1, f'{{"{LOSS}": NaN}}')
    assert best_step(tmp_path / "nan") is None
    save(tmp_path / "untracked", 1, {LOSS: 0.1}, metric=None)
    assert best_step(tmp_path / "untracked") is None
    (tmp_path / "bare" / "step_1").mkdir(parents=True)
    (tmp_path / "bare" / "step_1" / "training_info.json").write_text("{}")
    assert best_step(tmp_path / "bare") is None


def test_the_metric_is_found_under_its_full_name_only(tmp_path: Path) -> None:
    save(tmp_path, 1, {"validation-default_loss": 0.1, "loss": 0.1})
    save(tmp_path, 2, {LOSS: 0.9})
    assert best_step(tmp_path) == 2


def test_training_info_with_a_value_that_json_does_not_have_is_read(tmp_path: Path) -> None:
    save(tmp_path, 3, f'{{"{LOSS}": NaN, "consumed_samples": 6, "total_steps": 3}}')
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.training_info == {LOSS: None, "consumed_samples": 6, "total_steps": 3}
    assert newest.tracking == Tracking(LOSS, False) and newest.measured(newest.tracking) is None


def test_a_broken_training_info_is_named(tmp_path: Path) -> None:
    save(tmp_path, 1, "{")
    (checkpoint,) = complete_checkpoints(tmp_path)
    with pytest.raises(ValueError, match=r"step_1/training_info\.json is not valid JSON"):
        _ = checkpoint.training_info
