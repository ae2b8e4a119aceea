"""NeMo-RL's checkpoint folders: written under a temporary name, renamed when complete, trimmed to the best."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from nvtrader_rl_dagster.local_trainer.config import ConfigError, Section
from nvtrader_rl_dagster.local_trainer.console import say, warn

WEIGHTS = Path("policy") / "weights" / "model" / "consolidated"
TOKENIZER = Path("policy") / "tokenizer"
OPTIMIZER = Path("policy") / "optimizer" / "optimizer.pt"
DATALOADER = Path("train_dataloader.pt")


@dataclass(frozen=True)
class CheckpointSettings:
    """The section ``checkpointing``."""

    enabled: bool
    folder: Path
    metric_name: str | None
    higher_is_better: bool
    keep_top_k: int | None
    save_period: int
    must_save_by: float
    save_optimizer: bool

    @classmethod
    def from_config(cls, section: Section) -> CheckpointSettings:
        keep = section.optional("keep_top_k", int)
        if keep is not None and keep < 0:
            raise ConfigError(f"config: '{section.dotted('keep_top_k')}' must be null or at least 0, got {keep}.")
        limit = section.optional("checkpoint_must_save_by", str)
        return cls(
            enabled=section.get("enabled", bool),
            folder=Path(section.get("checkpoint_dir", str)),
            metric_name=section.optional("metric_name", str),
            higher_is_better=section.get("higher_is_better", bool),
            keep_top_k=keep,
            save_period=section.positive("save_period"),
            must_save_by=math.inf if limit is None else _seconds(limit, section.dotted("checkpoint_must_save_by")),
            save_optimizer=section.get("save_optimizer", bool),
        )


def _seconds(text: str, key: str) -> float:
    """Seconds of ``DD:HH:MM:SS``."""
    if not re.fullmatch(r"\d+:\d+:\d+:\d+", text):
        raise ConfigError(f"config: '{key}' must look like 'DD:HH:MM:SS', got {text!r}.")
    days, hours, minutes, seconds = (int(part) for part in text.split(":"))
    return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds


def check_metric_name(full_name: str | None, train: set[str], validation: set[str]) -> None:
    """Raise ValueError as NeMo-RL does at the first save, when ``checkpointing.metric_name`` cannot exist.

    No validation set at all is accepted: the checkpoints then have no metric.
    """
    if full_name is None:
        return
    prefix, _, name = full_name.partition(":")
    if prefix not in ("train", "val"):
        raise ConfigError(
            f"config: 'checkpointing.metric_name' is {full_name!r}; it must start with 'val:' or 'train:', "
            "for example 'val:validation-default_loss'."
        )
    known = train if prefix == "train" else validation
    if name not in known and (known or prefix == "train"):
        raise ConfigError(
            f"config: 'checkpointing.metric_name': metric {name} not found in {prefix} metrics; "
            f"known are {', '.join(sorted(known))}."
        )


def tracked_metric(
    full_name: str | None, train: Mapping[str, float], validation: Mapping[str, float]
) -> dict[str, float | None]:
    """The metric that ranks this checkpoint, under its full name; empty (with a warning) when not measured."""
    if full_name is None:
        return {}
    prefix, _, name = full_name.partition(":")
    source = train if prefix == "train" else validation
    if name not in source:
        warn(f"no {prefix} metrics at this step: the checkpoint has no {name} and ranks last")
        return {}
    return {full_name: source[name]}


class CheckpointStore:
    """Saves, finds and trims the ``step_<N>`` folders of one run."""

    def __init__(self, settings: CheckpointSettings) -> None:
        self.settings = settings
        self.folder = settings.folder

    def repair(self) -> None:
        """After a kill: put back a folder that was about to be replaced, and remove unfinished saves."""
        for path in sorted(self.folder.glob("old_step_*")):
            complete = self.folder / path.name.removeprefix("old_")
            if complete.exists():
                shutil.rmtree(path)
            else:
                path.rename(complete)
        for path in sorted(self.folder.glob("tmp_step_*")):
            say(f"Removing incomplete checkpoint {path}")
            shutil.rmtree(path)

    def steps(self) -> dict[int, Path]:
        """Complete checkpoints by step, oldest first."""
        found = {
            int(path.name.removeprefix("step_")): path
            for path in self.folder.glob("step_*")
            if re.fullmatch(r"step_\d+", path.name)
        }
        return dict(sorted(found.items()))

    def latest(self) -> Path | None:
        steps = self.steps()
        return steps[max(steps)] if steps else None

    def save(
        self,
        step: int,
        info: Mapping[str, Any],
        config: Mapping[str, Any],
        write_state: Callable[[Path], None],
    ) -> Path:
        """Write ``tmp_step_<step>``, flush it to disk, rename it to ``step_<step>`` and trim.

        ``write_state`` writes weights, tokenizer, optimiser and data state into the folder that it gets.
        """
        temporary = self.folder / f"tmp_step_{step}"
        final = self.folder / f"step_{step}"
        old = self.folder / f"old_step_{step}"
        if temporary.exists():
            shutil.rmtree(temporary)
        temporary.mkdir(parents=True)
        (temporary / "training_info.json").write_text(json.dumps(_finite(info), allow_nan=False), encoding="utf-8")
        (temporary / "config.yaml").write_text(yaml.safe_dump(dict(config), allow_unicode=True), encoding="utf-8")
        write_state(temporary)
        _flush_tree(temporary)
        if final.exists():
            final.rename(old)
            temporary.rename(final)
            shutil.rmtree(old)
        else:
            temporary.rename(final)
        _flush(self.folder)
        self._trim()
        return final

    def _trim(self) -> None:
        keep, name = self.settings.keep_top_k, self.settings.metric_name
        if keep is None:
            return
        steps = self.steps()
        missing = -math.inf if self.settings.higher_is_better else math.inf

        def rank(step: int) -> tuple[float, int]:
            if name is None:
                return (0.0, -step)
            value = read_info(steps[step]).get(name)
            value = missing if value is None else value
            return (-value if self.settings.higher_is_better else value, -step)

        for step in sorted(steps, key=rank)[keep:]:
            if step != max(steps):
                say(f"Removing checkpoint {steps[step]} due to being outside top-{keep}")
                shutil.rmtree(steps[step])


def read_info(checkpoint: Path) -> dict[str, Any]:
    """``training_info.json`` of a complete checkpoint."""
    info: dict[str, Any] = json.loads((checkpoint / "training_info.json").read_text(encoding="utf-8"))
    return info


def write_model(folder: Path, model: Any, tokenizer: Any) -> None:
    """A Hugging Face folder (weights and tokenizer) in the checkpoint, and the tokenizer where NeMo-RL puts it."""
    if not all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters()):
        warn("the weights hold values that are not finite; this checkpoint cannot be used")
    model.save_pretrained(folder / WEIGHTS)
    tokenizer.save_pretrained(folder / WEIGHTS)
    tokenizer.save_pretrained(folder / TOKENIZER)


def write_torch(path: Path, state: Any) -> None:
    """torch.save under a new parent; plain values and tensors only, so ``weights_only`` loads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)


def read_torch(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def _finite(info: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: such a value becomes null, and a line says so."""
    bad = [key for key, value in info.items() if isinstance(value, float) and not math.isfinite(value)]
    if bad:
        warn(f"not finite, written as null into training_info.json: {', '.join(bad)}")
    return {key: None if key in bad else value for key, value in info.items()}


def _flush_tree(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        _flush(path)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
