"""GRPO and GDPO: advantages within a group of answers."""

from __future__ import annotations

import pytest
from rollout_cases import VERSIONS, built


@pytest.mark.parametrize("version", VERSIONS)
def test_grpo_compares_an_answer_with_the_mean_of_its_group(version: str) -> None:
    grpo = built("grpo", version=version).config["grpo"]
    assert grpo["adv_estimator"]["name"] == "grpo"
    assert grpo["adv_estimator"]["normalize_rewards"] is True
    assert grpo["use_leave_one_out_baseline"] is grpo["adv_estimator"]["use_leave_one_out_baseline"] is False


@pytest.mark.parametrize("algo", ["grpo", "dapo", "gdpo"])
def test_a_group_of_one_is_refused(algo: str) -> None:
    with pytest.raises(ValueError, match="generations_per_prompt"):
        built(algo, generations_per_prompt=1)


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_kl_penalty_the_reference_is_not_computed(version: str) -> None:
    assert built("grpo", version=version).config["grpo"]["skip_reference_policy_logprobs_calculation"] is False
    without = built("grpo", version=version, kl_penalty=0).config
    assert without["grpo"]["skip_reference_policy_logprobs_calculation"] is True
    assert without["loss_fn"]["reference_policy_kl_penalty"] == 0


def test_clip_options_reach_the_loss() -> None:
    loss = built("grpo", clip_low=0.1, clip_high=0.3, dual_clip=3).config["loss_fn"]
    assert (loss["ratio_clip_min"], loss["ratio_clip_max"], loss["ratio_clip_c"]) == (0.1, 0.3, 3)


def test_only_the_newer_release_gets_its_new_keys() -> None:
    old, new = built("grpo").config, built("grpo", version="0.7.0").config
    assert set(new["grpo"]) - set(old["grpo"]) == {
        "advantage_clip_low",
        "advantage_clip_high",
        "invalid_tool_call_advantage",
        "malformed_thinking_advantage",
    }
    assert set(new["loss_fn"]) - set(old["loss_fn"]) == {"use_cispo", "positive_example_nll_weight"}
    assert {"data_plane", "on_policy_distillation"} == set(new) - set(old)


@pytest.mark.parametrize("version", VERSIONS)
def test_gdpo_normalizes_each_reward_and_says_that_weights_do_not_count(version: str) -> None:
    run = built("gdpo", version=version, rewards={"length_sane": 1, "my.rewards.tone": 5})
    assert run.config["grpo"]["adv_estimator"]["name"] == "gdpo"
    assert any("weights do not count" in note for note in run.notes)
    assert not any("weights do not count" in note for note in built("gdpo", version=version).notes)
