"""PPO: options, and the YAML for `run_ppo.py` (NeMo-RL 0.7.0) or `run_grpo.py` (0.6.0, which has no value model)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from nvtrader_rl_dagster.nemo_rl.configs.built import BuiltConfig
from nvtrader_rl_dagster.nemo_rl.configs.data import PromptData
from nvtrader_rl_dagster.nemo_rl.configs.environments import environment_section
from nvtrader_rl_dagster.nemo_rl.configs.grpo_sections import grpo_yaml
from nvtrader_rl_dagster.nemo_rl.configs.overrides import finished, take_overrides
from nvtrader_rl_dagster.nemo_rl.configs.policy_gradient_options import PolicyGradientOptions
from nvtrader_rl_dagster.nemo_rl.configs.ppo_sections import ppo_yaml, value_rules
from nvtrader_rl_dagster.nemo_rl.configs.rollout_options import rollout_keys
from nvtrader_rl_dagster.nemo_rl.configs.rollout_rules import rollout_rules
from nvtrader_rl_dagster.nemo_rl.configs.rollouts import RolloutPlan, plan_rollouts
from nvtrader_rl_dagster.nemo_rl.configs.target import Target


class PpoOptions(PolicyGradientOptions):
    """What a user changes about a PPO run."""

    option_keys: ClassVar[Mapping[str, str]] = {
        **PolicyGradientOptions.option_keys,
        **rollout_keys("grpo"),
        **rollout_keys("ppo"),
        "ppo.ppo_epochs": "ppo_epochs",
        "ppo.adv_estimator.gae_lambda": "gae_lambda",
        "ppo.adv_estimator.gae_gamma": "gae_gamma",
        "ppo.policy_training_start_step": "value_warmup_steps",
        "value_loss_fn.cliprange": "value_clip",
        "value.optimizer.kwargs.lr": "value_learning_rate",
        "value.megatron_cfg.optimizer.lr": "value_learning_rate",
    }

    prompts_per_step: int = Field(
        default=32,
        ge=2,
        description="Prompts answered in each step. Shrinks to the number of prompts when there are fewer.",
    )
    generations_per_prompt: int = Field(
        default=1,
        ge=1,
        description="Answers generated for each prompt of a step. PPO compares an answer with an expectation, not with "
        "other answers, so one is enough.",
    )
    updates_per_step: int = Field(
        default=4, ge=1, description="Optimizer updates made from one step's answers, each from an equal share of them."
    )
    ppo_epochs: int = Field(
        default=1, ge=1, description="Passes over each step's answers; more than 1 needs NeMo-RL 0.7.0."
    )
    gae_lambda: float = Field(
        default=0.95,
        ge=0,
        le=1,
        description="GAE lambda: 0 trusts the value model, 1 the reward alone. NeMo-RL 0.7.0 only.",
    )
    gae_gamma: float = Field(
        default=1.0, gt=0, le=1, description="Discount of later tokens' rewards. NeMo-RL 0.7.0 only."
    )
    value_learning_rate: float = Field(
        default=1e-5, gt=0, description="Peak AdamW learning rate of the value model. NeMo-RL 0.7.0 only."
    )
    value_clip: float | None = Field(
        default=0.2,
        gt=0,
        description="A new value counts up to this far from the old one; empty: no clipping. NeMo-RL 0.7.0 only.",
    )
    value_warmup_steps: int = Field(
        default=0, ge=0, description="First steps that train the value model alone. NeMo-RL 0.7.0 only."
    )


def build_ppo_config(
    options: PpoOptions,
    data: PromptData,
    checkpoints: Path,
    logs: Path,
    target: Target = Target(),  # noqa: B008 (frozen)
) -> BuiltConfig:
    """PPO. With 0.7.0: value model, GAE, clipped objective, KL divergence in the rewards. With 0.6.0: see the notes.

    Raises `ValueError` for data, options or overrides that NeMo-RL could not train with. Source: Schulman et al. 2017,
    arXiv:1707.06347. Keys: NeMo-RL 0.7.0 `examples/configs/ppo_math_1B.yaml` and `algorithms/ppo.py`; 0.6.0 as GRPO.
    """
    options, overrides = take_overrides("ppo", options, target.version)
    if target.version == "0.7.0":
        options, notes = _with_value_worker(options)
        plan = plan_rollouts(options, data, target)
        config = ppo_yaml(options, data, checkpoints, logs, target, plan, environment_section(options))
        section, rules = "ppo", [rollout_rules("ppo"), value_rules]
    else:
        if options.ppo_epochs > 1:
            raise ValueError(
                "ppo_epochs: NeMo-RL 0.6.0 makes one pass over a step's answers; set ppo_epochs 1 and use "
                "updates_per_step, or take 0.7.0"
            )
        # Normalized over the batch, the reward of a single prompt is always 0.
        plan = plan_rollouts(options, data, target, least=2 if options.generations_per_prompt == 1 else 1)
        config, notes = _without_value_model(options, data, checkpoints, logs, target, plan)
        section, rules = "grpo", [rollout_rules("grpo")]
    if options.value_warmup_steps >= plan.steps and section == "ppo":
        raise ValueError(
            f"value_warmup_steps: all {plan.steps} steps would train the value model alone; lower it below that"
        )
    return finished("ppo", config, overrides, target, steps=plan.steps, notes=[*notes, *plan.notes], rules=rules)


def _with_value_worker(options: PpoOptions) -> tuple[PpoOptions, list[str]]:
    if options.lora_rank:
        raise ValueError("lora: NeMo-RL's PPO has no reference with LoRA; set lora_rank 0")
    if options.worker == "dtensor":
        return options.model_copy(update={"worker": "dtensor_v2"}), [
            "worker dtensor_v2 instead of dtensor: NeMo-RL has a value worker for that one and for megatron only"
        ]
    return options, []


def _without_value_model(
    options: PpoOptions, data: PromptData, checkpoints: Path, logs: Path, target: Target, plan: RolloutPlan
) -> tuple[dict[str, Any], list[str]]:
    """PPO's clipped objective through `run_grpo.py`, with the advantages of REINFORCE++ (Hu 2025, arXiv:2501.03262).

    Its per-prompt baseline is only there for several answers: the mean of one answer's reward is that reward, and
    every advantage would be 0. KL stays in the loss: 0.6.0 leaves it there even with `use_kl_in_reward`, so that it
    would count twice.
    """
    grouped = options.generations_per_prompt > 1
    config = grpo_yaml(
        "ppo",
        options,
        data,
        checkpoints,
        logs,
        target,
        plan,
        estimator="reinforce_plus_plus",
        minus_baseline=grouped,
        env=environment_section(options),
    )
    baseline = (
        "its prompt's mean reward, normalized over all answer tokens of the step"
        if grouped
        else "the mean over all answer tokens of the step, in units of their standard deviation; a step whose answers "
        "all get the same reward teaches nothing"
    )
    return config, [
        "PPO with NeMo-RL 0.6.0 is PPO's clipped objective through run_grpo.py, without a value model and GAE: there "
        f"is no run_ppo.py. Advantages (reinforce_plus_plus): an answer's reward less {baseline}",
        "the KL divergence is in the loss",
    ]
