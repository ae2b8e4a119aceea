"""What SFT, DPO and reward-model trainings have in common: one pass over given rows, validated on held-out ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS
from nvtrader_rl_dagster.nemo_rl.configs.base_model import resolve_base_model
from nvtrader_rl_dagster.nemo_rl.configs.batches import data_parallel, plan_batches
from nvtrader_rl_dagster.nemo_rl.configs.built import BuiltConfig
from nvtrader_rl_dagster.nemo_rl.configs.data import TrainingData
from nvtrader_rl_dagster.nemo_rl.configs.options import TrainingOptions
from nvtrader_rl_dagster.nemo_rl.configs.overrides import finished
from nvtrader_rl_dagster.nemo_rl.configs.sections import (
    checkpointing_section,
    cluster_section,
    logger_section,
    policy_section,
)
from nvtrader_rl_dagster.nemo_rl.configs.target import Target
from nvtrader_rl_dagster.nemo_rl.configs.validation import plan_validation


def supervised_keys(section: str, *, batch: str) -> dict[str, str]:
    """Keys of an algorithm's own section, and of its batches, that options decide. batch: the option of the batch."""
    return {
        f"{section}.max_num_epochs": "epochs",
        f"{section}.max_num_steps": "max_steps",
        f"{section}.val_period": "validation_period",
        f"{section}.seed": "seed",
        "policy.train_global_batch_size": batch,
        "policy.train_micro_batch_size": "micro_batch",
    }


def supervised_config(
    algo: str,
    options: TrainingOptions,
    overrides: dict[str, Any],
    data: TrainingData,
    checkpoints: Path,
    logs: Path,
    target: Target,
    *,
    batch: int,
    held_out: int,
    unit: str,
    weight_decay: float,
    data_section: dict[str, Any],
    own: Mapping[str, Any] | None = None,
    policy: Mapping[str, Any] | None = None,
) -> BuiltConfig:
    """The YAML of `algo`. batch: rows asked per step. held_out: rows asked per validation. unit: one row, in words.

    own, policy: what the algorithm adds to its own section and to the policy. Raises `ValueError` as
    `plan_batches` and `finished` do.
    """
    plan = plan_batches(options, target, asked=batch, rows=data.train_rows, unit=f"{unit}s", file=data.train)
    validation = plan_validation(
        options, data, rows=held_out, replicas=data_parallel(options, target), unit=unit, steps=plan.steps
    )
    algorithm = ALGOS[algo]
    config: dict[str, Any] = {
        algorithm.release(target.version).section: {
            "max_num_epochs": options.epochs,
            "max_num_steps": plan.steps,
            "val_period": validation.period,
            "val_batches": validation.batches,
            "val_global_batch_size": validation.batch,
            "val_micro_batch_size": 1,
            "val_at_start": data.validates,
            "val_at_end": data.validates,
            "seed": options.seed,
            **(own or {}),
        },
        "policy": {
            **policy_section(
                options,
                target,
                model=resolve_base_model(options.base_model),
                batch=plan.batch,
                micro_batch=plan.micro_batch,
                steps=plan.steps,
                weight_decay=weight_decay,
            ),
            **(policy or {}),
        },
        "data": data_section,
        "checkpointing": checkpointing_section(
            options,
            checkpoints,
            steps=plan.steps,
            save_period=validation.save_period,
            metric_name=algorithm.tracked if data.validates else None,
            higher_is_better=algorithm.higher_is_better,
        ),
        "logger": logger_section(options, logs),
        "cluster": cluster_section(target),
    }
    notes = [*plan.notes, *validation.notes]
    return finished(algo, config, overrides, target, steps=plan.steps, notes=notes)
