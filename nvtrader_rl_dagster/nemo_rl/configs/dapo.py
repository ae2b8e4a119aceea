"""DAPO: options, and the YAML for `run_grpo.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from nvtrader_rl_dagster.nemo_rl.configs.built import BuiltConfig
from nvtrader_rl_dagster.nemo_rl.configs.data import PromptData
from nvtrader_rl_dagster.nemo_rl.configs.environments import environment_section
from nvtrader_rl_dagster.nemo_rl.configs.grpo import GrpoOptions
from nvtrader_rl_dagster.nemo_rl.configs.grpo_sections import grpo_yaml
from nvtrader_rl_dagster.nemo_rl.configs.overrides import finished, take_overrides
from nvtrader_rl_dagster.nemo_rl.configs.rollout_rules import rollout_rules
from nvtrader_rl_dagster.nemo_rl.configs.rollouts import plan_rollouts
from nvtrader_rl_dagster.nemo_rl.configs.target import Target


class DapoOptions(GrpoOptions):
    """What a user changes about a DAPO run."""

    option_keys: ClassVar[Mapping[str, str]] = {
        **GrpoOptions.option_keys,
        "grpo.batch_multiplier": "batch_multiplier",
        "grpo.dynamic_sampling_max_gen_batches": "max_generation_batches",
        "grpo.reward_shaping.overlong_buffer_penalty": "overlong_penalty",
    }

    kl_penalty: float = Field(
        default=0.0, ge=0, description="Weight of the KL divergence from the policy at the start; DAPO has none."
    )
    clip_high: float = Field(
        default=0.28,
        gt=0,
        description="A token's probability ratio counts up to 1 plus this; more than clip_low, so that unlikely tokens "
        "can grow.",
    )
    dual_clip: float | None = Field(
        default=10.0,
        gt=1,
        description="Bounds the loss of a token with a negative advantage to this many times the advantage; empty: no "
        "bound.",
    )
    batch_multiplier: int = Field(
        default=2,
        ge=1,
        description="Prompts answered at once, in multiples of prompts_per_step: those whose answers all got the same "
        "reward are thrown away. Shrinks to the data.",
    )
    max_generation_batches: int = Field(
        default=10,
        ge=1,
        description="Batches generated for one step at most; when they hold too few prompts with different rewards, "
        "the run fails.",
    )
    overlong_share: float = Field(
        default=0.25,
        gt=0,
        le=1,
        description="Last part of max_new_tokens in which an answer's reward falls with its length.",
    )
    overlong_penalty: float = Field(
        default=1.0, ge=0, description="Taken from the reward of an answer of max_new_tokens."
    )


def build_dapo_config(
    options: DapoOptions,
    data: PromptData,
    checkpoints: Path,
    logs: Path,
    target: Target = Target(),  # noqa: B008 (frozen)
) -> BuiltConfig:
    """DAPO: higher upper clip, dynamic sampling, loss over tokens, soft penalty for overlong answers; rewards 0 to 1
    are scaled to -1 to 1.

    Raises `ValueError` as `build_grpo_config`. Source: Yu et al. 2025, arXiv:2503.14476. Keys: NeMo-RL
    `examples/configs/recipes/llm/dapo-qwen2.5-7b.yaml`.
    """
    options, overrides = take_overrides("dapo", options, target.version)
    plan = plan_rollouts(options, data, target, multiplier=options.batch_multiplier)
    passes = options.epochs * (options.max_generation_batches + 1)
    own: dict[str, Any] = {
        # NeMo-RL takes the last batch of the last pass for the last step only when each step used one batch. With
        # passes to spare max_num_steps ends the run, so that its last step validates and is saved.
        "max_num_epochs": passes,
        "use_dynamic_sampling": True,
        "dynamic_sampling_max_gen_batches": options.max_generation_batches,
        "batch_multiplier": plan.multiplier,
        "reward_scaling": {
            "enabled": True,
            "source_min": 0.0,
            "source_max": 1.0,
            "target_min": -1.0,
            "target_max": 1.0,
        },
        "reward_shaping": {
            "enabled": True,
            "overlong_buffer_length": max(1, int(options.max_new_tokens * options.overlong_share)),
            "overlong_buffer_penalty": options.overlong_penalty,
            "max_response_length": options.max_new_tokens,
            "stop_properly_penalty_coef": None,
        },
    }
    env = environment_section(options, verifier="dapo_math_verify")
    config = grpo_yaml("dapo", options, data, checkpoints, logs, target, plan, env=env, own=own)
    notes = [
        *plan.notes,
        f"{plan.steps} steps, over up to {passes} passes: further passes make up for prompts that dynamic sampling "
        "throws away",
    ]
    return finished("dapo", config, overrides, target, steps=plan.steps, notes=notes, rules=(rollout_rules("grpo"),))
