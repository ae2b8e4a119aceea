"""The sections that GRPO, its variants and PPO share: the loss, and the part of a step that makes rewards.

Keys: NeMo-RL's `ClippedPGLossConfig`, `GRPOConfig`, `PPOConfig` and what their loops read beyond them.
"""

from __future__ import annotations

from typing import Any

from nvtrader_rl_dagster.nemo_rl.configs.policy_gradient_options import PolicyGradientOptions
from nvtrader_rl_dagster.nemo_rl.configs.target import Target


def loss_section(options: PolicyGradientOptions, target: Target, *, kl_in_reward: bool = False) -> dict[str, Any]:
    """`loss_fn`: the clipped objective with the KL divergence in the loss, or in the rewards (as PPO has it).

    In the rewards the divergence is estimated by k1, whose policy gradient is exact there; in the loss by k3, which is
    never negative (Schulman, http://joschu.net/blog/kl-approx.html).
    """
    section: dict[str, Any] = {
        "reference_policy_kl_penalty": options.kl_penalty,
        "reference_policy_kl_type": "k1" if kl_in_reward else "k3",
        "kl_input_clamp_value": 20.0,
        "kl_output_clamp_value": 10.0,
        "ratio_clip_min": options.clip_low,
        "ratio_clip_max": options.clip_high,
        "ratio_clip_c": options.dual_clip,
        "use_on_policy_kl_approximation": False,
        "use_importance_sampling_correction": False,
        "truncated_importance_sampling_ratio": None,
        "truncated_importance_sampling_ratio_min": None,
        "truncated_importance_sampling_type": None,
        "sequence_level_importance_ratios": False,
        "token_level_loss": True,
        "disable_ppo_ratio": False,
        "force_on_policy_ratio": False,
        "use_kl_in_reward": kl_in_reward,
    }
    if target.version == "0.7.0":
        section |= {"use_cispo": False, "positive_example_nll_weight": 0.0}
    return section


def rewards_as_given(max_new_tokens: int) -> dict[str, Any]:
    """`reward_shaping` and `reward_scaling`, off, and no answer dropped for its length."""
    return {
        "overlong_filtering": False,
        "reward_shaping": {
            "enabled": False,
            "overlong_buffer_length": max(1, max_new_tokens // 8),
            "overlong_buffer_penalty": 1.0,
            "max_response_length": max_new_tokens,
            "stop_properly_penalty_coef": None,
        },
        "reward_scaling": {
            "enabled": False,
            "source_min": 0.0,
            "source_max": 1.0,
            "target_min": 0.0,
            "target_max": 1.0,
        },
        "use_dynamic_sampling": False,
        "dynamic_sampling_max_gen_batches": 10,
        "batch_multiplier": 1,
    }
