"""The YAML for `run_grpo.py`, which GRPO, DAPO, GDPO and, with NeMo-RL 0.6.0, PPO go through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.nemo_rl.configs.base_model import resolve_base_model
from nvtrader_rl_dagster.nemo_rl.configs.data import TrainingData
from nvtrader_rl_dagster.nemo_rl.configs.policy_gradient import loss_section, rewards_as_given
from nvtrader_rl_dagster.nemo_rl.configs.policy_gradient_options import PolicyGradientOptions
from nvtrader_rl_dagster.nemo_rl.configs.rollout_sections import assembled, rollout_policy, step_section
from nvtrader_rl_dagster.nemo_rl.configs.rollouts import RolloutPlan
from nvtrader_rl_dagster.nemo_rl.configs.target import Target


def grpo_yaml(
    algo: str,
    options: PolicyGradientOptions,
    data: TrainingData,
    checkpoints: Path,
    logs: Path,
    target: Target,
    plan: RolloutPlan,
    *,
    env: dict[str, Any],
    estimator: str = "grpo",
    minus_baseline: bool = True,
    own: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """estimator, minus_baseline: of `grpo.adv_estimator`. own: keys of `grpo` that differ from plain GRPO."""
    normalization = {"normalize_rewards": True, "use_leave_one_out_baseline": False}
    grpo: dict[str, Any] = {
        **step_section(options, data, plan),
        # What logging and dynamic sampling use; the estimator has its own copy.
        **normalization,
        "skip_reference_policy_logprobs_calculation": options.kl_penalty == 0,
        "calculate_advantages_on_gpu": False,
        "seq_logprob_error_threshold": None,
        "adv_estimator": {"name": estimator, **normalization, "minus_baseline": minus_baseline},
        **rewards_as_given(options.max_new_tokens),
        "async_grpo": {
            "enabled": False,
            "max_trajectory_age_steps": 1,
            "in_flight_weight_updates": False,
            "recompute_kv_cache_after_weight_updates": False,
        },
    }
    sections: dict[str, Any] = {"grpo": grpo | (own or {}), "loss_fn": loss_section(options, target)}
    if target.version == "0.7.0":
        sections["grpo"] |= {
            "advantage_clip_low": None,
            "advantage_clip_high": None,
            "invalid_tool_call_advantage": None,
            "malformed_thinking_advantage": None,
        }
        sections |= {"data_plane": None, "on_policy_distillation": None}
    policy = rollout_policy(options, target, plan, model=resolve_base_model(options.base_model), ticks=plan.steps)
    return assembled(algo, options, data, checkpoints, logs, target, plan, policy=policy, env=env, own=sections)
