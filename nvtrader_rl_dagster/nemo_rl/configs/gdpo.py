"""GDPO: options, and the YAML for `run_grpo.py`."""

from __future__ import annotations

from pathlib import Path

from nvtrader_rl_dagster.nemo_rl.configs.built import BuiltConfig
from nvtrader_rl_dagster.nemo_rl.configs.data import PromptData
from nvtrader_rl_dagster.nemo_rl.configs.environments import environment_section
from nvtrader_rl_dagster.nemo_rl.configs.grpo import GrpoOptions
from nvtrader_rl_dagster.nemo_rl.configs.grpo_sections import grpo_yaml
from nvtrader_rl_dagster.nemo_rl.configs.overrides import finished, take_overrides
from nvtrader_rl_dagster.nemo_rl.configs.rollout_rules import rollout_rules
from nvtrader_rl_dagster.nemo_rl.configs.rollouts import plan_rollouts
from nvtrader_rl_dagster.nemo_rl.configs.target import Target
from nvtrader_rl_dagster.nemo_rl.driver.registration import ENVIRONMENT


class GdpoOptions(GrpoOptions):
    """What a user changes about a GDPO run."""


def build_gdpo_config(
    options: GdpoOptions,
    data: PromptData,
    checkpoints: Path,
    logs: Path,
    target: Target = Target(),  # noqa: B008 (frozen)
) -> BuiltConfig:
    """GDPO: GRPO with an advantage per reward, each normalized in its group; their sum is normalized in the batch.

    Raises `ValueError` as `build_grpo_config`, and for fewer than two rewards. Keys: NeMo-RL
    `examples/configs/gdpo_math_1B.yaml`.
    """
    options, overrides = take_overrides("gdpo", options, target.version)
    plan = plan_rollouts(options, data, target)
    env = environment_section(options, multi=True)
    notes = [*plan.notes, "the reported reward is the sum of the rewards"]
    if options.environment == ENVIRONMENT and len(set(env[ENVIRONMENT]["rewards"].values())) > 1:
        notes.append("the rewards' weights do not count: GDPO normalizes each reward on its own and adds them equally")
    config = grpo_yaml("gdpo", options, data, checkpoints, logs, target, plan, estimator="gdpo", env=env)
    return finished("gdpo", config, overrides, target, steps=plan.steps, notes=notes, rules=(rollout_rules("grpo"),))
