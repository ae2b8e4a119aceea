"""DAPO: higher upper clip, dynamic sampling, loss over tokens, overlong penalty."""

from __future__ import annotations

import pytest
from rollout_cases import VERSIONS, built, prompts


@pytest.mark.parametrize("version", VERSIONS)
def test_dapo_is_said_as_its_recipe_says_it(version: str) -> None:
    config = built("dapo", version=version).config
    grpo, loss = config["grpo"], config["loss_fn"]
    assert loss["ratio_clip_max"] > loss["ratio_clip_min"]
    assert loss["ratio_clip_c"] == 10
    assert loss["token_level_loss"] is True
    assert loss["reference_policy_kl_penalty"] == 0
    assert grpo["use_dynamic_sampling"] is True
    assert grpo["reward_scaling"] | {"source_max": 1} == {
        "enabled": True,
        "source_min": 0,
        "source_max": 1,
        "target_min": -1,
        "target_max": 1,
    }


def test_the_overlong_penalty_grows_over_the_last_part_of_the_longest_answer() -> None:
    shaping = built("dapo", max_new_tokens=400, overlong_share=0.25, overlong_penalty=0.5).config["grpo"][
        "reward_shaping"
    ]
    assert shaping["enabled"]
    assert (shaping["overlong_buffer_length"], shaping["max_response_length"]) == (100, 400)
    assert shaping["overlong_buffer_penalty"] == 0.5


def test_more_prompts_are_drawn_than_a_step_trains_on() -> None:
    run = built("dapo", prompts_per_step=4, batch_multiplier=3, data=prompts(48))
    assert run.config["grpo"]["batch_multiplier"] == 3
    assert run.steps == 48 // 12


def test_few_prompts_shrink_a_step_rather_than_the_choice() -> None:
    grpo = built("dapo", prompts_per_step=8, batch_multiplier=2, data=prompts(9)).config["grpo"]
    assert (grpo["num_prompts_per_step"], grpo["batch_multiplier"]) == (4, 2)


def test_steps_end_the_run_and_not_passes() -> None:
    """A pass that ends first would end it without validation and checkpoint of the last step."""
    run = built("dapo", epochs=2, max_generation_batches=3)
    grpo = run.config["grpo"]
    batches_per_pass = 64 // (grpo["num_prompts_per_step"] * grpo["batch_multiplier"])
    assert grpo["max_num_epochs"] * batches_per_pass >= run.steps * (3 + 1)


def test_a_math_answer_is_read_as_in_the_recipe() -> None:
    assert built("dapo", environment="math").config["env"]["math"]["math_verify_impl"] == "dapo_math_verify"
