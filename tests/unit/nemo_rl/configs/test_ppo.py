"""PPO: a value model with NeMo-RL 0.7.0, the clipped objective alone with 0.6.0."""

from __future__ import annotations

import pytest
from rollout_cases import built, prompts

from nvtrader_rl_dagster.nemo_rl.configs import BuiltConfig


def _schedule(model: dict[str, object]) -> int:
    """Ticks that a learning-rate schedule spans."""
    parts = model["scheduler"]
    assert isinstance(parts, list)
    return sum(part["kwargs"]["total_iters"] for part in parts if "kwargs" in part)


def _ppo(**options: object) -> BuiltConfig:
    return built("ppo", version="0.7.0", **options)


def test_on_0_6_0_one_answer_per_prompt_has_a_baseline_that_is_not_itself() -> None:
    run = built("ppo")
    grpo = run.config["grpo"]
    assert grpo["num_generations_per_prompt"] == 1
    assert grpo["adv_estimator"]["name"] == "reinforce_plus_plus"
    # The mean of one answer's reward is that reward: with it every advantage would be 0.
    assert grpo["adv_estimator"]["minus_baseline"] is False
    assert any("without a value model and GAE" in note for note in run.notes)


def test_on_0_6_0_several_answers_per_prompt_share_a_baseline() -> None:
    assert built("ppo", generations_per_prompt=4).config["grpo"]["adv_estimator"]["minus_baseline"] is True


def test_on_0_6_0_the_kl_divergence_counts_once() -> None:
    loss = built("ppo", kl_penalty=0.02).config["loss_fn"]
    assert loss["reference_policy_kl_penalty"] == 0.02
    assert loss["use_kl_in_reward"] is False


def test_on_0_6_0_a_step_of_one_prompt_is_refused_because_it_teaches_nothing() -> None:
    with pytest.raises(ValueError, match=r"^no_rows: .*needs 2"):
        built("ppo", data=prompts(1))


def test_on_0_6_0_several_passes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^ppo_epochs: .*updates_per_step"):
        built("ppo", ppo_epochs=2)


def test_the_clip_range_can_act_because_a_step_makes_several_updates() -> None:
    for version in ("0.6.0", "0.7.0"):
        policy = built("ppo", version=version).config["policy"]
        assert policy["train_global_batch_size"] == 32 // 4


def test_on_0_7_0_advantages_come_from_a_value_model() -> None:
    config = _ppo(gae_lambda=0.9, value_clip=0.5).config
    assert config["ppo"]["adv_estimator"] == {
        "name": "gae",
        "gae_lambda": 0.9,
        "gae_gamma": 1.0,
        "normalize_advantages": True,
        "gae_lambda_value": None,
        "gae_lambda_policy": None,
        "length_adaptive_alpha": 0.0,
    }
    assert config["value_loss_fn"]["cliprange"] == 0.5
    assert "grpo" not in config


def test_on_0_7_0_both_models_have_the_worker_that_value_models_need() -> None:
    run = _ppo()
    assert run.config["policy"]["dtensor_cfg"]["_v2"] is run.config["value"]["dtensor_cfg"]["_v2"] is True
    assert run.config["value"]["reward_model_cfg"] == {"enabled": True, "reward_model_type": "regression"}
    assert run.config["checkpointing"]["model_save_format"] == "safetensors"
    assert any("dtensor_v2 instead of dtensor" in note for note in run.notes)


def test_on_0_7_0_megatron_trains_both_models() -> None:
    config = _ppo(worker="megatron", value_learning_rate=3e-5).config
    for model in ("policy", "value"):
        assert config[model]["megatron_cfg"]["enabled"]
        assert config[model]["dtensor_cfg"] == {"enabled": False}
    assert config["value"]["megatron_cfg"]["optimizer"]["lr"] == 3e-5
    assert config["value"]["reward_model_cfg"]["enabled"] is False


def test_on_0_7_0_the_value_model_learns_at_its_own_rate() -> None:
    config = _ppo(learning_rate=2e-6, value_learning_rate=3e-5).config
    assert config["policy"]["optimizer"]["kwargs"]["lr"] == 2e-6
    assert config["value"]["optimizer"]["kwargs"]["lr"] == 3e-5
    assert config["value"]["train_global_batch_size"] == config["policy"]["train_global_batch_size"]


def test_on_0_7_0_the_schedule_spans_all_passes_because_each_moves_it() -> None:
    run = _ppo(ppo_epochs=4, epochs=10)
    assert _schedule(run.config["policy"]) == _schedule(run.config["value"]) == run.steps * 4


def test_on_0_7_0_the_kl_divergence_is_in_the_rewards() -> None:
    loss = _ppo().config["loss_fn"]
    assert (loss["use_kl_in_reward"], loss["reference_policy_kl_type"]) == (True, "k1")
    without = _ppo(kl_penalty=0).config
    assert without["loss_fn"]["use_kl_in_reward"] is False
    assert without["ppo"]["skip_reference_policy_logprobs_calculation"] is True


def test_on_0_7_0_a_warm_up_of_the_value_model_leaves_steps_for_the_policy() -> None:
    assert _ppo(epochs=3, value_warmup_steps=2).config["ppo"]["policy_training_start_step"] == 2
    with pytest.raises(ValueError, match=r"^value_warmup_steps: all 2 steps"):
        _ppo(value_warmup_steps=2)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"value.sequence_packing.enabled": True}, "sequence_packing"),
        ({"value.dynamic_batching.enabled": True}, "dynamic_batching"),
        ({"value.train_global_batch_size": 16}, "must equal policy.train_global_batch_size"),
        ({"value.dtensor_cfg._v2": False}, "no older value worker"),
    ],
)
def test_on_0_7_0_what_the_value_model_cannot_do_is_refused(overrides: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=f"^structure: .*{said}"):
        _ppo(overrides=overrides)
