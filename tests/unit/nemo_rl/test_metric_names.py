"""One name for one quantity, wherever it comes from."""

from __future__ import annotations

import pytest

from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS
from nvtrader_rl_dagster.nemo_rl.metric_names import METRIC_NAMES, part_name, printed_name, tag_name


@pytest.mark.parametrize("algo", ALGOS)
def test_every_metric_of_an_algorithm_is_in_the_vocabulary(algo: str) -> None:
    names = {spec.name for spec in (*ALGOS[algo].train_metrics, *ALGOS[algo].validation_metrics)}
    assert names and names <= set(METRIC_NAMES)


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("loss", "loss"),
        ("Loss", "loss"),
        ("Policy Loss", "loss"),
        ("num valid samples", "num_valid_samples"),
        ("Avg Reward", "reward"),
        ("Avg Total Reward", "reward"),
        ("Mean Generation Length", "mean_gen_tokens_per_sample"),
        ("Average response length", "avg_length"),
        ("Critic Clip Frac", "critic_vf_clipfrac"),
        ("Something New", "something_new"),
    ],
)
def test_printed_labels(label: str, name: str) -> None:
    assert printed_name(label) == name


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("train/loss", ("train", None, "loss")),
        ("train/critic/loss", ("train", None, "critic_loss")),
        ("train/advantages/mean", ("train", None, "advantages_mean")),
        ("validation/val_loss", ("validation", "default", "loss")),
        ("validation/accuracy", ("validation", "default", "accuracy")),
        ("validation-my set/loss", ("validation", "my set", "loss")),
        ("timing/train/total_step_time", ("train", None, "step_seconds")),
        ("timing/train/policy_training/sharding_data", ("train", None, "seconds/policy_training/sharding_data")),
        ("timing/train/valid_tokens_per_sec_per_gpu", ("train", None, "valid_tokens_per_sec_per_gpu")),
        ("timing/validation-a/total_validation_time", ("validation", "a", "validation_seconds")),
        ("performance/train_flops_per_gpu", ("train", None, "train_flops_per_gpu")),
        ("timing/setup/policy_init_time_s", None),
        ("ray/node.0.gpu.0.memory", None),
        ("hparam/policy.lr", None),
    ],
)
def test_tags_of_tensorboard(tag: str, expected: object) -> None:
    assert tag_name(tag) == expected


def test_a_timed_part_has_the_same_name_printed_and_drawn() -> None:
    for label in ("policy_training", "prepare_for_generation/total"):
        drawn = tag_name(f"timing/train/{label}")
        assert drawn is not None and drawn[2] == part_name(label)
    assert part_name("Total step time") == "step_seconds"
