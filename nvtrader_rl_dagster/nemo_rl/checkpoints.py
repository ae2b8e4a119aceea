"""Reads NeMo-RL's checkpoint layout: `step_<n>` is complete, everything else is not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.files import read_json, sha256_of, write_json

_COMPLETE = re.compile(r"step_(\d+)")
#: Where a v2 worker with `save_consolidated`, and the embedded trainer, put a folder that
#: `AutoModelForCausalLM.from_pretrained` loads.
_CONSOLIDATED = Path("policy/weights/model/consolidated")


@dataclass(frozen=True)
class Checkpoint:
    """One complete checkpoint folder."""

    path: Path
    step: int

    @property
    def training_info(self) -> dict[str, Any]:
        """NeMo-RL's `training_info.json`: counters and the validation metrics at this step."""
        info: dict[str, Any] = read_json(self.path / "training_info.json")
        return info

    @property
    def huggingface(self) -> Path:
        """The Hugging Face folder. Raises `FileNotFoundError` for a checkpoint without one."""
        folder = self.path / _CONSOLIDATED
        if not (folder / "config.json").exists():
            raise FileNotFoundError(f"{self.path} holds no Hugging Face weights at {_CONSOLIDATED}")
        return folder

    def weights_sha256(self) -> str:
        """Hash of the weight files: the identity of the model, whatever its folder is called."""
        weights = sorted((self.path / _CONSOLIDATED).glob("*.safetensors"))
        # A DTensor v1 worker saves sharded `.distcp` files only.
        return sha256_of(weights or sorted(f for f in (self.path / "policy/weights").rglob("*") if f.is_file()))

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
