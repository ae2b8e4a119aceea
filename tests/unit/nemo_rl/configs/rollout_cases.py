"""Builds configurations for tests of trainings on generated answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.nemo_rl.configs import BUILDERS, OPTIONS, BuiltConfig, PromptData, Target

ROLLOUTS = ("grpo", "ppo", "dapo", "gdpo", "distillation")
VERSIONS = ("0.6.0", "0.7.0")
_REWARDS = {"length_sane": 1.0, "house.rewards.concrete": 1.0}


def prompts(rows: int = 64, held_out: int = 16) -> PromptData:
    return PromptData(Path("/data/train.jsonl"), Path("/data/validation.jsonl") if held_out else None, rows, held_out)


def built(
    algo: str, *, version: str = "0.6.0", data: PromptData | None = None, gpus: int = 1, **options: Any
) -> BuiltConfig:
    """With a base model of that name and two rewards."""
    chosen = OPTIONS[algo](**{"base_model": "model", "rewards": _REWARDS, **options})
    target = Target(version=version, gpus_per_node=gpus)
    return BUILDERS[algo](chosen, data or prompts(), Path("/run/checkpoints"), Path("/run/logs"), target)


def section_of(algo: str, config: dict[str, Any]) -> dict[str, Any]:
    """The algorithm's own section: `grpo`, `ppo` or `distillation`."""
    (name,) = {"grpo", "ppo", "distillation"} & set(config)
    own: dict[str, Any] = config[name]
    return own
