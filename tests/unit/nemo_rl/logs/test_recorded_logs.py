"""Real output of NeMo-RL 0.6.0, one log an algorithm and a kind of end."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from nvtrader_rl_dagster.nemo_rl.logs.report import LogReport, read_log

pytestmark = pytest.mark.real_data

# name, algorithm, steps, validations (step, set), steps of checkpoints, end, failure
LOGS = [
    (
        "dpo_8_pairs_ok",
        "dpo",
        [1, 2, 3, 4],
        [(0, "default"), (2, "default"), (4, "default")],
        [2, 4],
        "max_steps",
        None,
    ),
    ("dpo_no_validation_ok", "dpo", [1, 2, 3, 4], [], [2, 4], "max_steps", None),
    ("dpo_resumed_second_epoch_ok", "dpo", [5, 6], [(6, "default")], [6], "max_steps", None),
    ("dpo_fewer_rows_than_a_batch_exit0", "dpo", [], [(0, "default")], [], "unknown", "zero_steps"),
    ("dpo_sigterm", "dpo", [1, 2, 3, 4, 5, 6, 7], [], [5], "unknown", None),
    (
        *("dpo_wrong_metric_name_fails_at_first_save", "dpo", [1], [(0, "default"), (2, "default")], []),
        *("error", "error"),
    ),
    (
        *("rm_two_validation_sets_ok", "rm", [1, 2, 3, 4]),
        *([(step, name) for step in (0, 2, 4) for name in ("alpha", "beta")], [2, 4], "epochs", None),
    ),
    ("sft_ok", "sft", [1, 2, 3, 4], [(0, "default"), (2, "default"), (4, "default")], [2, 4], "max_steps", None),
    (
        "grpo_custom_rewards_ok",
        "grpo",
        [1, 2, 3],
        [(0, "default"), (2, "default"), (3, "default")],
        [2, 3],
        "max_steps",
        None,
    ),
    ("distillation_ok", "distillation", [1, 2], [(0, "default"), (2, "default")], [2], "max_steps", None),
]


def read(real_data: Path, name: str, algo: str) -> LogReport:
    return read_log([(real_data / "nemo_rl_logs" / f"{name}.log").read_bytes()], algo)


@pytest.mark.parametrize(("name", "algo", "steps", "validations", "saved", "end", "failure"), LOGS)
def test_what_the_log_says(
    real_data: Path,
    name: str,
    algo: str,
    steps: list[int],
    validations: list[tuple[int, str]],
    saved: list[int],
    end: str,
    failure: str | None,
) -> None:
    report = read(real_data, name, algo)
    assert [row["step"] for row in report.steps] == steps
    assert [(row["step"], row["set"]) for row in report.validations] == validations
    assert [row["step"] for row in report.checkpoints] == saved and all(row["path"] for row in report.checkpoints)
    assert report.end == end and report.flags == []
    assert (report.failure or {}).get("code") == failure
    for row in report.steps:
        assert row["metrics"]["loss"] is not None and row["metrics"]["step_seconds"] > 0
        assert sum(key.startswith("seconds/") for key in row["metrics"]) >= 2


def test_values_of_the_preference_runs(real_data: Path) -> None:
    report = read(real_data, "dpo_8_pairs_ok", "dpo")
    assert abs(report.validations[0]["metrics"]["loss"] - math.log(2)) < 5e-5
    assert (report.validations[2]["metrics"]["loss"], report.steps[3]["metrics"]["loss"]) == (0.6882, 0.6899)
    assert report.checkpoints[0]["path"] == "/data/out/dpo/ckpt/step_2"
    reward_model = read(real_data, "rm_two_validation_sets_ok", "rm")
    assert [row["metrics"]["accuracy"] for row in reward_model.validations] == [0.5, 1.0, 0.75, 0.75, 1.0, 1.0]


def test_values_of_the_rl_runs(real_data: Path) -> None:
    report = read(real_data, "grpo_custom_rewards_ok", "grpo")
    assert [row["metrics"]["reward"] for row in report.steps] == [0.0417, 0.0833, 0.0833]
    assert [row["metrics"]["accuracy"] for row in report.validations] == [0.1667, 0.0833, 0.0833]
    distilled = read(real_data, "distillation_ok", "distillation")
    assert distilled.steps[0]["metrics"]["mean_gen_tokens_per_sample"] == 8.0
    assert distilled.checkpoints == [{"step": 2, "path": "/data/out/distill/ckpt/step_2"}]
