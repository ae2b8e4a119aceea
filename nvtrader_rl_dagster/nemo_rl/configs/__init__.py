"""Builds the standalone YAML of every algorithm for NeMo-RL 0.6.0 and 0.7.0: nothing inherited, nothing left open."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel

from nvtrader_rl_dagster.nemo_rl.configs.base_model import BASE_MODEL_VARIABLE, resolve_base_model
from nvtrader_rl_dagster.nemo_rl.configs.built import BuiltConfig
from nvtrader_rl_dagster.nemo_rl.configs.dapo import DapoOptions, build_dapo_config
from nvtrader_rl_dagster.nemo_rl.configs.data import BenchmarkData, ChatData, PreferenceData, PromptData, TrainingData
from nvtrader_rl_dagster.nemo_rl.configs.distillation import DistillationOptions, build_distillation_config
from nvtrader_rl_dagster.nemo_rl.configs.dpo import DpoOptions, build_dpo_config
from nvtrader_rl_dagster.nemo_rl.configs.eval import EvalOptions, build_eval_config
from nvtrader_rl_dagster.nemo_rl.configs.gdpo import GdpoOptions, build_gdpo_config
from nvtrader_rl_dagster.nemo_rl.configs.grpo import GrpoOptions, build_grpo_config
from nvtrader_rl_dagster.nemo_rl.configs.options import TrainingOptions
from nvtrader_rl_dagster.nemo_rl.configs.ppo import PpoOptions, build_ppo_config
from nvtrader_rl_dagster.nemo_rl.configs.rm import RmOptions, build_rm_config
from nvtrader_rl_dagster.nemo_rl.configs.sft import SftOptions, build_sft_config
from nvtrader_rl_dagster.nemo_rl.configs.target import Target

#: `BUILDERS[algo](options, data, checkpoints, logs, target)`.
BUILDERS: dict[str, Callable[..., BuiltConfig]] = {
    "sft": build_sft_config,
    "dpo": build_dpo_config,
    "rm": build_rm_config,
    "grpo": build_grpo_config,
    "ppo": build_ppo_config,
    "dapo": build_dapo_config,
    "gdpo": build_gdpo_config,
    "distillation": build_distillation_config,
    "eval": build_eval_config,
}
OPTIONS: dict[str, type[BaseModel]] = {
    "sft": SftOptions,
    "dpo": DpoOptions,
    "rm": RmOptions,
    "grpo": GrpoOptions,
    "ppo": PpoOptions,
    "dapo": DapoOptions,
    "gdpo": GdpoOptions,
    "distillation": DistillationOptions,
    "eval": EvalOptions,
}

__all__ = [
    "BASE_MODEL_VARIABLE",
    "BUILDERS",
    "OPTIONS",
    "BenchmarkData",
    "BuiltConfig",
    "ChatData",
    "DapoOptions",
    "DistillationOptions",
    "DpoOptions",
    "EvalOptions",
    "GdpoOptions",
    "GrpoOptions",
    "PpoOptions",
    "PreferenceData",
    "PromptData",
    "RmOptions",
    "SftOptions",
    "Target",
    "TrainingData",
    "TrainingOptions",
    "build_dapo_config",
    "build_distillation_config",
    "build_dpo_config",
    "build_eval_config",
    "build_gdpo_config",
    "build_grpo_config",
    "build_ppo_config",
    "build_rm_config",
    "build_sft_config",
    "resolve_base_model",
]
