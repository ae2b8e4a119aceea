"""Optimiser and learning-rate schedule out of NeMo-RL's ``policy.optimizer`` and ``policy.scheduler``."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, SequentialLR

from nvtrader_rl_dagster.local_trainer.config import ConfigError, Section


def _torch_class(settings: Section, base: type) -> Any:
    """The class that ``name`` means; only classes of torch.optim are allowed."""
    name = settings.get("name", str)
    module, _, attribute = name.rpartition(".")
    found = None
    if module == "torch.optim" or module.startswith("torch.optim."):
        found = getattr(import_module(module), attribute, None)
    if not isinstance(found, type) or not issubclass(found, base):
        raise ConfigError(
            f"config: '{settings.dotted('name')}' is {name!r}, which is no {base.__name__} of torch.optim."
        )
    return found


def _build(settings: Section, base: type, first: Any) -> Any:
    kwargs = settings.section("kwargs", optional=True).values
    try:
        return _torch_class(settings, base)(first, **kwargs)
    except TypeError as error:
        raise ConfigError(f"config: '{settings.dotted('kwargs')}': {error}") from error


def build_optimizer(parameters: Iterable[torch.nn.Parameter], policy: Section) -> Optimizer:
    """The optimiser of ``policy.optimizer.{name,kwargs}`` over all parameters, without groups.

    AdamW is fused (5x faster here than torch's loop). A false ``fused`` or ``foreach`` says how to compute with the
    DTensor parameters that NeMo-RL has and this trainer has not: it is left out.
    """
    settings = policy.section("optimizer")
    given = settings.section("kwargs", optional=True).values
    kwargs = {key: value for key, value in given.items() if key not in ("fused", "foreach") or value}
    if settings.get("name", str) == "torch.optim.AdamW" and not {"fused", "foreach"} & kwargs.keys():
        kwargs["fused"] = True
    settings = Section(settings.values | {"kwargs": kwargs}, settings.path)
    result: Optimizer = _build(settings, Optimizer, parameters)
    return result


def build_scheduler(optimizer: Optimizer, policy: Section) -> LRScheduler:
    """The schedule of ``policy.scheduler``: absent (constant), one mapping, or a list that ends in milestones."""
    scheduler = policy.values.get("scheduler")
    if scheduler is None:
        return LambdaLR(optimizer, _constant)
    result: LRScheduler
    if isinstance(scheduler, dict):
        result = _build(policy.section("scheduler"), LRScheduler, optimizer)
        return result
    path = policy.dotted("scheduler")
    if not isinstance(scheduler, list) or not all(isinstance(entry, dict) for entry in scheduler):
        raise ConfigError(f"config: '{path}' must be a mapping or a list of mappings.")
    parts = [Section(entry, f"{path}[{i}]") for i, entry in enumerate(scheduler) if "name" in entry]
    milestones = [entry["milestones"] for entry in scheduler if "milestones" in entry]
    if len(milestones) != 1 or not isinstance(milestones[0], list) or len(milestones[0]) != len(parts) - 1:
        raise ConfigError(f"config: '{path}' needs one entry 'milestones' with {max(len(parts) - 1, 0)} step numbers.")
    return SequentialLR(optimizer, [_build(part, LRScheduler, optimizer) for part in parts], milestones[0])


def _constant(_: int) -> float:
    return 1.0
