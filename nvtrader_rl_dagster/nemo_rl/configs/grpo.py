"""GRPO: options, and the YAML for `run_grpo.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from nvtrader_rl_dagster.nemo_rl.configs.built import BuiltConfig
from nvtrader_rl_dagster.nemo_rl.configs.data import PromptData
from nvtrader_rl_dagster.nemo_rl.configs.environments import environment_section
from nvtrader_rl_dagster.nemo_rl.configs.grpo_sections import grpo_yaml
from nvtrader_rl_dagster.nemo_rl.configs.overrides import finished, take_overrides
from nvtrader_rl_dagster.nemo_rl.configs.policy_gradient_options import PolicyGradientOptions
from nvtrader_rl_dagster.nemo_rl.configs.rollout_options import rollout_keys
from nvtrader_rl_dagster.nemo_rl.configs.rollout_rules import rollout_rules
from nvtrader_rl_dagster.nemo_rl.configs.rollouts import plan_rollouts
from nvtrader_rl_dagster.nemo_rl.configs.target import Target


class GrpoOptions(PolicyGradientOptions):
    """What a user changes about a GRPO run."""

    option_keys: ClassVar[Mapping[str, str]] = {**PolicyGradientOptions.option_keys, **rollout_keys("grpo")}

    generations_per_prompt: int = Field(
        default=8, ge=2, description="Answers generated for each prompt of a step; they are compared with each other."
    )


def build_grpo_config(
    options: GrpoOptions,
    data: PromptData,
    checkpoints: Path,
    logs: Path,
    target: Target = Target(),  # noqa: B008 (frozen)
) -> BuiltConfig:
    """GRPO: an answer's advantage is its reward less its group's mean, over the group's standard deviation.

    Raises `ValueError` for data, options or overrides that NeMo-RL could not train with. Source: Shao et al. 2024,
    arXiv:2402.03300. Keys: NeMo-RL `examples/configs/grpo_math_1B.yaml` and what `algorithms/grpo.py` reads beyond it.
    """
    options, overrides = take_overrides("grpo", options, target.version)
    plan = plan_rollouts(options, data, target)
    env = environment_section(options)
    config = grpo_yaml("grpo", options, data, checkpoints, logs, target, plan, env=env)
    return finished(
        "grpo", config, overrides, target, steps=plan.steps, notes=plan.notes, rules=(rollout_rules("grpo"),)
    )
