"""The sections that every training on generated answers shares, put together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS
from nvtrader_rl_dagster.nemo_rl.configs.data import TrainingData
from nvtrader_rl_dagster.nemo_rl.configs.environments import prompt_data_section
from nvtrader_rl_dagster.nemo_rl.configs.generation import generation_section
from nvtrader_rl_dagster.nemo_rl.configs.megatron import megatron_section
from nvtrader_rl_dagster.nemo_rl.configs.options import TrainingOptions
from nvtrader_rl_dagster.nemo_rl.configs.rollout_options import RolloutOptions
from nvtrader_rl_dagster.nemo_rl.configs.rollouts import RolloutPlan
from nvtrader_rl_dagster.nemo_rl.configs.sections import (
    checkpointing_section,
    cluster_section,
    logger_section,
    policy_section,
)
from nvtrader_rl_dagster.nemo_rl.configs.target import Target

WEIGHT_DECAY = 0.01


def step_section(options: RolloutOptions, data: TrainingData, plan: RolloutPlan) -> dict[str, Any]:
    """What the algorithm's own section says about steps and validation."""
    return {
        "num_prompts_per_step": plan.prompts,
        "num_generations_per_prompt": options.generations_per_prompt,
        "max_rollout_turns": 1,
        "max_num_epochs": options.epochs,
        "max_num_steps": plan.steps,
        "val_period": plan.val_period,
        "val_batch_size": plan.val_batch,
        "max_val_samples": plan.val_samples,
        "val_at_start": data.validates,
        "val_at_end": data.validates,
        "seed": options.seed,
    }


def rollout_policy(
    options: RolloutOptions, target: Target, plan: RolloutPlan, *, model: str, ticks: int, trains: bool = True
) -> dict[str, Any]:
    """A policy that generates. ticks: training calls of the whole run; the learning rate moves once in each."""
    policy = policy_section(
        options,
        target,
        model=model,
        batch=plan.batch,
        micro_batch=plan.micro_batch,
        steps=ticks,
        weight_decay=WEIGHT_DECAY,
        trains=trains,
    )
    if options.worker == "megatron":
        policy["megatron_cfg"] = rollout_megatron(options, target, ticks)
    return policy | {
        "hf_config_overrides": {},
        "logprob_batch_size": plan.micro_batch,
        "logprob_chunk_size": None,
        "draft": {"enabled": False},
        "generation": generation_section(
            target,
            max_new_tokens=options.max_new_tokens,
            max_model_len=options.max_sequence_tokens,
            temperature=options.temperature,
            gpu_memory_utilization=options.gpu_memory_utilization,
            tensor_parallel=options.tensor_parallel,
        ),
    }


def rollout_megatron(options: TrainingOptions, target: Target, ticks: int) -> dict[str, Any]:
    """`megatron_cfg` with what the references of trainings with generation have."""
    return megatron_section(options, target, steps=ticks, weight_decay=WEIGHT_DECAY, rl=True)


def assembled(
    algo: str,
    options: RolloutOptions,
    data: TrainingData,
    checkpoints: Path,
    logs: Path,
    target: Target,
    plan: RolloutPlan,
    *,
    policy: dict[str, Any],
    env: dict[str, Any],
    own: Mapping[str, Any],
) -> dict[str, Any]:
    """The whole YAML. own: the sections that only this algorithm has."""
    algorithm = ALGOS[algo]
    cluster = cluster_section(target)
    if target.version == "0.7.0":
        cluster |= {"master_port_range_low": 25000, "master_port_range_high": 28000}
    return {
        **own,
        "policy": policy,
        "env": env,
        "data": prompt_data_section(options, data, env),
        "checkpointing": checkpointing_section(
            options,
            checkpoints,
            steps=plan.steps,
            save_period=plan.save_period,
            metric_name=algorithm.tracked if data.validates else None,
            higher_is_better=algorithm.higher_is_better,
        ),
        "logger": logger_section(options, logs),
        "cluster": cluster,
    }
