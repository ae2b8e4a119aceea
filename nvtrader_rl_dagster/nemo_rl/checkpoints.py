"""Reads NeMo-RL's checkpoint layout: `step_<n>` is complete, everything else is not."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.files import read_json, sha256_of, write_json
from nvtrader_rl_dagster.nemo_rl.export.formats import WeightFormat, has_tokenizer, recognise

_COMPLETE = re.compile(r"step_([0-9]+)")
_WEIGHTS = Path("policy/weights")
#: Our export of weights that do not load as they are.
EXPORTED = Path("hf")
#: What we know about an export, beside its weights.
EXPORT_REPORT = "export.json"
#: Where a v2 worker with `save_consolidated`, and the embedded trainer, put a folder that
#: `AutoModelForCausalLM.from_pretrained` loads.
CONSOLIDATED = _WEIGHTS / "model" / "consolidated"


@dataclass(frozen=True)
class Tracking:
    """What ranks a run's checkpoints. name: NeMo-RL's full one, for example `val:validation-default_loss`."""

    name: str
    higher_is_better: bool


@dataclass(frozen=True)
class Checkpoint:
    """One complete checkpoint folder."""

    path: Path
    step: int

    @property
    def training_info(self) -> dict[str, Any]:
        """NeMo-RL's `training_info.json`: counters and the validation metrics at this step; NaN and inf are None."""
        text = (self.path / "training_info.json").read_text(encoding="utf-8")
        try:
            info: dict[str, Any] = json.loads(text, parse_constant=lambda _: None)
        except json.JSONDecodeError as error:
            raise ValueError(f"{self.path / 'training_info.json'} is not valid JSON: {error}") from error
        return info

    @property
    def config(self) -> dict[str, Any]:
        """The configuration that it was trained with, without secrets; empty when there is none."""
        import yaml

        from nvtrader_rl_dagster.nemo_rl.redaction import redact

        file = self.path / "config.yaml"
        config = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else None
        return redact(config) if isinstance(config, dict) else {}

    @property
    def tracking(self) -> Tracking | None:
        """What its run ranks checkpoints by, None for nothing."""
        section = self.config.get("checkpointing") or {}
        name = section.get("metric_name")
        return Tracking(name, bool(section.get("higher_is_better"))) if name else None

    def measured(self, tracking: Tracking | None) -> float | None:
        """The tracked metric, None when it was not measured or is no finite number."""
        value = self.training_info.get(tracking.name) if tracking else None
        # A boolean is an int to Python, and no measurement.
        usable = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        return float(value) if usable and value is not None else None

    @property
    def format(self) -> WeightFormat:
        """The format that the trainer saved the weights in."""
        return recognise(self.path / _WEIGHTS)

    @property
    def huggingface(self) -> Path:
        """The Hugging Face folder, with its tokenizer. Raises `FileNotFoundError` for a checkpoint without one."""
        for folder in (self.path / EXPORTED, self.path / CONSOLIDATED):
            if (folder / "config.json").exists() and has_tokenizer(folder):
                return folder
        raise FileNotFoundError(
            f"{self.path} holds no Hugging Face weights (its format is {self.format.value}); "
            "`nvtrader-rl checkpoints export` makes them"
        )

    @property
    def export_report(self) -> dict[str, Any] | None:
        """What our export measured, None for a checkpoint that was not exported."""
        file = self.path / EXPORTED / EXPORT_REPORT
        return read_json(file) if file.exists() else None

    def weights_sha256(self) -> str:
        """Hash of the weight files: the identity of the model, whatever its folder is called."""
        try:
            weights = sorted(self.huggingface.glob("*.safetensors"))
        except FileNotFoundError:
            weights = []
        # Not exported: the sharded files stand for the model.
        return sha256_of(weights or sorted(f for f in (self.path / _WEIGHTS).rglob("*") if f.is_file()))

    def describe(self) -> dict[str, Any]:
        """What the manifest says about the files: format, Hugging Face folder, tracked metric, identity, export."""
        tracking = self.tracking
        try:
            folder = self.huggingface.relative_to(self.path).as_posix()
        except FileNotFoundError:
            folder = None
        return {
            "format": self.format.value,
            "huggingface": folder,
            "tracked_metric": tracking.name if tracking else None,
            "tracked_value": self.measured(tracking),
            "higher_is_better": tracking.higher_is_better if tracking else None,
            "weights_sha256": self.weights_sha256(),
            "export": self.export_report,
        }

    @property
    def manifest(self) -> dict[str, Any]:
        """Our `manifest.json`: what this checkpoint was made from."""
        manifest: dict[str, Any] = read_json(self.path / "manifest.json")
        return manifest

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        write_json(self.path / "manifest.json", manifest)


def complete_checkpoints(folder: Path) -> list[Checkpoint]:
    """Complete checkpoints in numeric order (`step_10` after `step_9`); `tmp_` folders never count."""
    if not folder.is_dir():
        return []
    found = [
        Checkpoint(path, int(match.group(1)))
        for path in folder.iterdir()
        if (match := _COMPLETE.fullmatch(path.name)) and (path / "training_info.json").exists()
    ]
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """The complete checkpoint with the highest step, or None."""
    checkpoints = complete_checkpoints(folder)
    return checkpoints[-1] if checkpoints else None


def best_checkpoint(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """The best of a run's checkpoints by its tracked metric; of equal ones the newer.

    One without a finite value never wins. None when nothing is tracked, or nothing was measured.
    """
    newest = max(checkpoints, key=lambda checkpoint: checkpoint.step, default=None)
    tracking = newest.tracking if newest else None
    if tracking is None:
        return None
    sign = 1 if tracking.higher_is_better else -1
    measured = [(value, c) for c in checkpoints if (value := c.measured(tracking)) is not None]
    best = max(measured, key=lambda item: (sign * item[0], item[1].step), default=None)
    return best[1] if best else None
