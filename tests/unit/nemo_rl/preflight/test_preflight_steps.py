"""How many steps a run will make, and that none is a refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from looking import EMBEDDED, changed, codes, complete, look, make_tree, nemo_rl, save_checkpoint

from nvtrader_rl_dagster.nemo_rl.preflight.case import Start
from nvtrader_rl_dagster.nemo_rl.preflight.report import Report


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """20 pairs."""
    return complete(tmp_path_factory.mktemp("dpo"), "dpo")


def steps(report: Report) -> tuple[int | None, int | None]:
    return report.steps, report.steps_per_epoch


def test_fewer_pairs_than_a_batch_are_refused_before_anything_is_started(tmp_path: Path) -> None:
    """Case O31."""
    config = complete(tmp_path, "dpo", rows=50)
    report = look("dpo", changed(config, {"policy.train_global_batch_size": 128}), EMBEDDED)
    (finding,) = report.refusals
    assert finding.code == "zero_steps" and report.steps == 0
    assert "50 training rows do not fill one batch of policy.train_global_batch_size 128" in finding.message
    assert "at most 50" in finding.remedy


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"policy.train_global_batch_size": 6, "dpo.max_num_steps": 100}, (3, 3)),
        ({"policy.train_global_batch_size": 6, "dpo.max_num_steps": 100, "dpo.max_num_epochs": 4}, (12, 3)),
        ({"policy.train_global_batch_size": 6, "dpo.max_num_steps": 5, "dpo.max_num_epochs": 4}, (5, 3)),
        ({"policy.train_global_batch_size": 20, "dpo.max_num_steps": 1}, (1, 1)),
    ],
)
def test_an_incomplete_batch_is_left_out_of_each_epoch(
    config: dict[str, Any], changes: dict[str, Any], expected: tuple[int, int]
) -> None:
    report = look("dpo", changed(config, changes), EMBEDDED)
    assert steps(report) == expected and codes(report) == []


@pytest.mark.parametrize("key", ["max_num_steps", "max_num_epochs"])
@pytest.mark.parametrize("value", [0, -1])
def test_settings_that_end_a_run_at_once_are_refused(config: dict[str, Any], key: str, value: int) -> None:
    report = look("dpo", changed(config, {f"dpo.{key}": value}), EMBEDDED)
    assert codes(report) == ["zero_steps"] and f"dpo.{key} is {value}" in report.refusals[0].message


def test_a_save_period_of_zero_is_refused(config: dict[str, Any]) -> None:
    assert codes(look("dpo", changed(config, {"checkpointing.save_period": 0}), EMBEDDED)) == ["save_period"]


def test_minus_one_means_all_epochs_to_a_reward_model_only(tmp_path: Path) -> None:
    tree = nemo_rl(make_tree(tmp_path / "tree"))
    config = changed(complete(tmp_path, "rm"), {"policy.train_global_batch_size": 5, "rm.max_num_epochs": 3})
    assert steps(look("rm", changed(config, {"rm.max_num_steps": -1}), tree)) == (12, 4)
    sft = changed(complete(tmp_path / "sft", "sft"), {"sft.max_num_steps": -1})
    assert codes(look("sft", sft, tree)) == ["zero_steps"]


def test_prompts_are_counted_and_dynamic_sampling_takes_more_of_them(tmp_path: Path) -> None:
    tree = nemo_rl(make_tree(tmp_path / "tree"))
    config = changed(
        complete(tmp_path, "grpo"),
        {"grpo.num_prompts_per_step": 4, "grpo.max_num_steps": 100, "grpo.max_num_epochs": 1},
    )
    assert steps(look("grpo", config, tree)) == (5, 5)
    sampled = changed(config, {"grpo.use_dynamic_sampling": True, "grpo.batch_multiplier": 3})
    assert steps(look("grpo", sampled, tree)) == (1, 1)
    too_many = changed(sampled, {"grpo.batch_multiplier": 6})
    assert "zero_steps" in codes(look("grpo", too_many, tree))


def test_rows_that_are_split_off_for_validation_are_not_trained_on(tmp_path: Path) -> None:
    tree = nemo_rl(make_tree(tmp_path / "tree"))
    config = complete(tmp_path, "grpo")
    split = {"grpo.num_prompts_per_step": 4, "grpo.max_num_steps": 100, "data.train.split_validation_size": 0.25}
    assert steps(look("grpo", changed(config, split), tree)) == (3, 3)


def test_a_resume_counts_what_is_left(config: dict[str, Any], tmp_path: Path) -> None:
    run = changed(
        config,
        {
            "policy.train_global_batch_size": 5,
            "dpo.max_num_steps": 100,
            "dpo.max_num_epochs": 2,
            "checkpointing.checkpoint_dir": str(tmp_path / "ckpt"),
        },
    )
    save_checkpoint(tmp_path / "ckpt", 3, run, epoch=0, step=3)
    report = look("dpo", run, EMBEDDED, Start.RESUME)
    assert (report.steps, codes(report)) == (5, [])
    save_checkpoint(tmp_path / "ckpt", 4, run, epoch=0, step=0)
    assert look("dpo", run, EMBEDDED, Start.RESUME).steps == 4


def test_a_resume_after_the_last_epoch_is_refused_until_there_are_more_epochs(
    config: dict[str, Any], tmp_path: Path
) -> None:
    """More steps alone do nothing: the order of the data is exhausted."""
    where = {"checkpointing.checkpoint_dir": str(tmp_path / "ckpt"), "policy.train_global_batch_size": 5}
    run = changed(config, {**where, "dpo.max_num_steps": 4, "dpo.max_num_epochs": 1})
    save_checkpoint(tmp_path / "ckpt", 4, run, epoch=0, step=0)
    report = look("dpo", changed(run, {"dpo.max_num_steps": 400}), EMBEDDED)
    (finding,) = report.refusals
    assert finding.code == "nothing_left" and "raise dpo.max_num_epochs, or" in finding.remedy
    more = look("dpo", changed(run, {"dpo.max_num_steps": 400, "dpo.max_num_epochs": 2}), EMBEDDED)
    assert (more.steps, codes(more)) == (4, [])
    both = look("dpo", changed(run, {"dpo.max_num_epochs": 2}), EMBEDDED)
    assert codes(both) == ["nothing_left"] and "dpo.max_num_steps above 4" in both.refusals[0].remedy


def test_the_counters_of_rollouts_are_understood(tmp_path: Path) -> None:
    tree = nemo_rl(make_tree(tmp_path / "tree"))
    run = changed(
        complete(tmp_path, "grpo"),
        {"grpo.num_prompts_per_step": 4, "grpo.max_num_steps": 100, "grpo.max_num_epochs": 1},
    )
    folder = Path(run["checkpointing"]["checkpoint_dir"])
    save_checkpoint(folder, 2, run, current_epoch=0, current_step=2)
    assert look("grpo", run, tree).steps == 3
    save_checkpoint(folder, 5, run, current_epoch=0, current_step=5)
    assert "nothing_left" in codes(look("grpo", run, tree))


def test_steps_are_unknown_when_the_data_are_on_the_hub(config: dict[str, Any]) -> None:
    block = {"dataset_name": "PreferenceDataset", "data_path": "org/name"}
    assert look("dpo", changed(config, {"data.train": block}), EMBEDDED).steps is None
