"""The YAML for NeMo-RL 0.7.0's `run_ppo.py`: policy, value model, both losses.

Keys: `examples/configs/ppo_math_1B.yaml`, its Megatron variant, and what `algorithms/ppo.py` and the value workers
read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nvtrader_rl_dagster.nemo_rl.configs.base_model import resolve_base_model
from nvtrader_rl_dagster.nemo_rl.configs.data import TrainingData
from nvtrader_rl_dagster.nemo_rl.configs.policy_gradient import loss_section, rewards_as_given
from nvtrader_rl_dagster.nemo_rl.configs.rollout_sections import (
    WEIGHT_DECAY,
    assembled,
    rollout_megatron,
    rollout_policy,
    step_section,
)
from nvtrader_rl_dagster.nemo_rl.configs.rollouts import RolloutPlan
from nvtrader_rl_dagster.nemo_rl.configs.sections import policy_section
from nvtrader_rl_dagster.nemo_rl.configs.target import Target

if TYPE_CHECKING:
    from nvtrader_rl_dagster.nemo_rl.configs.ppo import PpoOptions


def ppo_yaml(
    options: PpoOptions,
    data: TrainingData,
    checkpoints: Path,
    logs: Path,
    target: Target,
    plan: RolloutPlan,
    env: dict[str, Any],
) -> dict[str, Any]:
    """The KL divergence is in the rewards, as PPO on language models has it; the loss leaves it out then."""
    ticks = plan.steps * options.ppo_epochs
    ppo = {
        **step_section(options, data, plan),
        **rewards_as_given(options.max_new_tokens),
        "ppo_epochs": options.ppo_epochs,
        "policy_training_start_step": options.value_warmup_steps,
        "skip_reference_policy_logprobs_calculation": options.kl_penalty == 0,
        "calculate_advantages_on_gpu": False,
        "adv_estimator": {
            "name": "gae",
            "gae_lambda": options.gae_lambda,
            "gae_gamma": options.gae_gamma,
            "normalize_advantages": True,
            "gae_lambda_value": None,
            "gae_lambda_policy": None,
            "length_adaptive_alpha": 0.0,
        },
    }
    sections = {
        "ppo": ppo,
        "value": _value(options, target, plan, ticks),
        "loss_fn": loss_section(options, target, kl_in_reward=options.kl_penalty > 0),
        "value_loss_fn": {"scale": 1.0, "cliprange": options.value_clip},
    }
    policy = rollout_policy(options, target, plan, model=resolve_base_model(options.base_model), ticks=ticks)
    return assembled("ppo", options, data, checkpoints, logs, target, plan, policy=policy, env=env, own=sections)


def _value(options: PpoOptions, target: Target, plan: RolloutPlan, ticks: int) -> dict[str, Any]:
    """`value`: the base model with a head of one number. Only the DTensor worker asks for the head by name."""
    own = options.model_copy(update={"learning_rate": options.value_learning_rate})
    megatron = options.worker == "megatron"
    value = policy_section(
        own,
        target,
        model=resolve_base_model(options.base_model),
        batch=plan.batch,
        micro_batch=plan.micro_batch,
        steps=ticks,
        weight_decay=WEIGHT_DECAY,
    )
    if megatron:
        value["megatron_cfg"] = rollout_megatron(own, target, ticks)
    return value | {
        "hf_config_overrides": {},
        "logprob_batch_size": plan.micro_batch,
        "reward_model_cfg": {"enabled": not megatron, "reward_model_type": "regression"},
    }


def value_rules(config: dict[str, Any]) -> None:
    """What the value model cannot do. Raises `ValueError` (`structure`)."""
    value = config["value"]
    if value["dtensor_cfg"]["enabled"]:
        if not value["dtensor_cfg"].get("_v2"):
            raise ValueError("structure: value.dtensor_cfg._v2 must be true: there is no older value worker")
        for key in ("sequence_packing", "dynamic_batching"):
            if value[key]["enabled"]:
                raise ValueError(f"structure: value.{key}.enabled must be false for the DTensor value model")
    if value["train_global_batch_size"] != config["policy"]["train_global_batch_size"]:
        raise ValueError(
            "structure: value.train_global_batch_size must equal policy.train_global_batch_size; use the option "
            "updates_per_step"
        )
