"""Registers environments with NeMo-RL: ours as `nvtrader`, and users' own by `env.<name>.class_path`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.nemo_rl.driver.prompts import PROCESSORS, keep_prompt
from nvtrader_rl_dagster.nemo_rl.driver.reward_model import DEVICES_VARIABLE
from nvtrader_rl_dagster.nemo_rl.driver.scoring import Scoring

ENVIRONMENT = "nvtrader"
CLASS_PATH = "nvtrader_rl_dagster.nemo_rl.driver.environment.RewardEnvironment"


def register(config: Path) -> None:
    """Make the environments of a configuration known to NeMo-RL. Nothing of Ray is started.

    Raises `ValueError` for rewards or a class that cannot be loaded: here, before a model is, and not hours later.
    """
    settings = _environments(config)
    classes = {ENVIRONMENT: CLASS_PATH}
    for name, own in settings.items():
        if path := own.get("class_path"):
            classes[name] = path
    for name, path in classes.items():
        _register_class(name, path)
    if ENVIRONMENT in settings and classes[ENVIRONMENT] == CLASS_PATH:
        print(f"[nvtrader] {Scoring.from_config(settings[ENVIRONMENT])}", flush=True)
    _keep_prompts()
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        os.environ[DEVICES_VARIABLE] = os.environ["CUDA_VISIBLE_DEVICES"]


def _environments(config: Path) -> dict[str, dict[str, Any]]:
    """The mappings below `env`, read with NeMo-RL's own loader."""
    from nemo_rl.utils.config import load_config
    from omegaconf import OmegaConf

    section = load_config(str(config)).get("env") or {}
    found = OmegaConf.to_container(section, resolve=False) if section else {}
    assert isinstance(found, dict)
    return {str(name): dict(own) for name, own in found.items() if isinstance(own, Mapping)}


def _register_class(name: str, path: str) -> None:
    from nemo_rl.distributed.ray_actor_environment_registry import ACTOR_ENVIRONMENT_REGISTRY
    from nemo_rl.distributed.virtual_cluster import PY_EXECUTABLES
    from nemo_rl.environments.utils import register_env

    module, _, kind = path.rpartition(".")
    try:
        getattr(import_module(module), kind)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"env.{name}.class_path: {path!r} cannot be loaded ({error}); put its folder into "
            "NVTRADER_NEMORL_PYTHONPATH"
        ) from error
    register_env(name, path)
    ACTOR_ENVIRONMENT_REGISTRY.setdefault(path, PY_EXECUTABLES.SYSTEM)
    print(f"[nvtrader] environment {name}: {path}", flush=True)


def _keep_prompts() -> None:
    from nemo_rl.data.processors import PROCESSOR_REGISTRY

    for name in PROCESSORS:
        if name in PROCESSOR_REGISTRY:
            PROCESSOR_REGISTRY[name] = partial(keep_prompt, PROCESSOR_REGISTRY[name])
