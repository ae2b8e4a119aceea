"""What each algorithm prints, under one vocabulary of names."""

from __future__ import annotations

from typing import Any

import pytest

from nvtrader_rl_dagster.nemo_rl.logs.report import LogReport, read_log
from tests import printed_logs as printed

_EVAL = (
    f"\n{'=' * 60}\nmodel_name='tiny' dataset_name='bench.jsonl'\n"
    "max_new_tokens=64 temperature=0.0 top_p=1.0 top_k=-1 seed=42\n\nmetric=pass@1 num_tests_per_prompt=1\n\n"
    f"score=0.1000 (3.0/30)\n{'=' * 60}\n\n"
)


def read(text: str, algo: str | None = None) -> LogReport:
    return read_log([text.encode()], algo)


def measured(row: dict[str, Any]) -> dict[str, float | None]:
    """Without the timed parts."""
    return {name: value for name, value in row["metrics"].items() if not name.startswith("seconds/")}


def test_dpo() -> None:
    bullets = printed.dpo_bullets(0.6931)
    before = printed.validation(1, *(f"Validation {b}" for b in printed.dpo_bullets(0.6645, 16)), name="default")
    report = read(printed.READY + printed.epoch(1) + printed.step(1, 1, *bullets, before=before), "dpo")
    (step,), (validation,) = report.steps, report.validations
    assert step["step"] == 1 and validation["step"] == 1 and validation["set"] == "default"
    assert measured(step) == {
        "loss": 0.6931,
        "sft_loss": 0.0,
        "preference_loss": 0.6931,
        "accuracy": 0.0,
        "rewards_chosen_mean": 0.0,
        "rewards_rejected_mean": 0.0,
        "num_valid_samples": 2.0,
        "global_valid_seqs": 2.0,
        "global_valid_toks": 2.0,
        "step_seconds": 1.5,
    }
    assert step["metrics"]["seconds/policy_training"] == 0.75
    assert measured(validation)["loss"] == 0.6645 and measured(validation)["validation_seconds"] == 1.25
    assert set(measured(validation)) == set(measured(step)) - {"step_seconds"} | {"validation_seconds"}


def test_rm_counts_samples_in_words() -> None:
    before = printed.validation(2, *(f"Validation {b}" for b in printed.rm_bullets(0.69, 4)), name="beta")
    report = read(printed.epoch(1) + printed.step(2, 4, *printed.rm_bullets(0.6931), before=before), "rm")
    assert measured(report.steps[0])["num_valid_samples"] == 2.0
    assert report.validations[0]["set"] == "beta" and measured(report.validations[0])["num_valid_samples"] == 4.0


def test_sft_prints_its_loss_with_a_capital() -> None:
    before = printed.validation(1, "Validation loss: 5.9923")
    report = read(printed.epoch(1) + printed.step(1, 4, "Loss: 5.9982", before=before), "sft")
    assert measured(report.steps[0]) == {"loss": 5.9982, "step_seconds": 1.5}
    assert measured(report.validations[0]) == {"loss": 5.9923, "validation_seconds": 1.25}


GRPO = ("Loss: 0.1748", "Generation KL Error: 0.0012", "Avg Reward: 0.0417", "Mean Generation Length: 8.0000")
RL_VALIDATION = ("Accuracy: 0.0833", "Average response length: 8.5 tokens", "Samples processed: 4")


@pytest.mark.parametrize("algo", ["grpo", "gdpo", "ppo"])
def test_grpo_gdpo_and_ppo_of_the_older_release(algo: str) -> None:
    text = printed.epoch(1) + printed.step(1, 3, *GRPO, before=printed.validation(1, *RL_VALIDATION))
    text += "\n🔍 Performance Metrics:\n  • Mean Total Tokens per Sample: 8.00\n  • Throughputs (per GPU):\n"
    report = read(text + "    - E2E (Samples/sec/gpu): 0.84\n", algo)
    assert measured(report.steps[0]) == {
        "loss": 0.1748,
        "gen_kl_error": 0.0012,
        "reward": 0.0417,
        "mean_gen_tokens_per_sample": 8.0,
        "step_seconds": 1.5,
    }
    assert measured(report.validations[0]) == {
        "accuracy": 0.0833,
        "avg_length": 8.5,
        "num_samples": 4.0,
        "validation_seconds": 1.25,
    }


def test_dapo_tells_kept_rewards_from_all_rewards() -> None:
    bullets = ("Loss: 0.1", "Generation KL Error: 0.0", "Avg Filtered Reward: 0.5", "Avg Total Reward: 0.25")
    report = read(printed.epoch(1) + printed.step(1, 3, *bullets), "dapo")
    assert measured(report.steps[0])["reward"] == 0.25 and measured(report.steps[0])["filtered_reward"] == 0.5


def test_asynchronous_grpo_has_a_buffer_and_no_epochs() -> None:
    bullets = ("Loss: 0.1", "Draft Loss: 0.2", "Buffer Size: 12", "Avg Trajectory Age: 1.50 steps")
    report = read(printed.step(7, 10, *bullets), "grpo")
    assert report.steps[0]["step"] == 7
    assert measured(report.steps[0]) == {
        "loss": 0.1,
        "draft_loss": 0.2,
        "buffer_size": 12.0,
        "avg_trajectory_age": 1.5,
        "step_seconds": 1.5,
    }


def test_ppo_of_the_newer_release_has_a_critic() -> None:
    before = (
        "▶ Computing values...\n  • Average batch reward: 9.0\n  • Average batch response length: 9.0\n"
        "▶ Step 1/4...\n    • Policy loss: 9.0\n    • Value loss: 9.0\n"
    )
    bullets = (
        *("Policy Loss: 0.012345678", "Critic Loss: 0.25", "Critic Grad Norm: 1.5", "Critic LR: 1.00e-05"),
        *("Critic Clip Frac: 0.1000", "Avg Reward: 0.5", "Mean Generation Length: 8.0"),
    )
    report = read(printed.epoch(1) + printed.step(1, 2, *bullets, before=before), "ppo")
    assert measured(report.steps[0]) == {
        "loss": 0.012345678,
        "critic_loss": 0.25,
        "critic_grad_norm": 1.5,
        "critic_lr": 1e-5,
        "critic_vf_clipfrac": 0.1,
        "reward": 0.5,
        "mean_gen_tokens_per_sample": 8.0,
        "step_seconds": 1.5,
    }


def test_a_value_that_is_not_there_is_null_with_a_flag() -> None:
    report = read(printed.epoch(1) + printed.step(1, 2, "Policy Loss: N/A", "Avg Reward: 0.5"), "ppo")
    assert measured(report.steps[0])["loss"] is None
    assert report.flags == [{"step": 1, "split": "train", "set": None, "name": "loss", "flag": "not_available"}]


def test_the_validation_of_the_transfer_queue_prints_its_time_without_a_bullet() -> None:
    text = "▶ Starting validation at step 2...\n\n📊 Validation Results:\n    • Accuracy: 0.5\n"
    report = read(text + "    • Samples processed: 4\n  ⏱️  Total validation time: 3.25s\n", "grpo")
    assert measured(report.validations[0]) == {"accuracy": 0.5, "num_samples": 4.0, "validation_seconds": 3.25}


def test_distillation_finds_its_checkpoint_folder_in_the_line_of_a_worker() -> None:
    worker = "\x1b[36m(DTensorPolicyWorker[rank=0] pid=7)\x1b[0m Saving tokenizer to /data/ckpt/tmp_step_2/tokenizer\n"
    text = printed.epoch(1, 10) + printed.step(
        2, 2, "Loss: 0.0", "Mean Generation Length: 8.0", before=printed.saving(2)
    )
    report = read(text + printed.MAX_STEPS + worker, "distillation")
    assert measured(report.steps[0]) == {"loss": 0.0, "mean_gen_tokens_per_sample": 8.0, "step_seconds": 1.5}
    assert report.checkpoints == [{"step": 2, "path": "/data/ckpt/step_2"}]


def test_a_benchmark_has_a_score_and_needs_no_step() -> None:
    for algo in ("eval", None):
        report = read(printed.READY + _EVAL, algo)
        assert report.validations == [{"step": 0, "set": "bench.jsonl", "metrics": {"score": 0.1, "num_samples": 30.0}}]
        assert (report.end, report.failure, report.steps) == ("epochs", None, [])


def test_a_benchmark_without_a_score_has_failed() -> None:
    report = read(printed.READY, "eval")
    assert report.failure is not None and report.failure["code"] == "no_score"
