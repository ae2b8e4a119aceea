"""How large the next training's model is, without loading it."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import orjson
import yaml

from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.checkpoints import Checkpoint, newest_checkpoint
from nvtrader_rl_dagster.nemo_rl.configs import resolve_base_model
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunStore

FLOAT32 = 4
_BUILTIN = {"builtin:tiny": 2_016_960, "builtin:smollm2": 134_515_008}
_NEWEST_RUNS = 20


@dataclass(frozen=True)
class BaseModel:
    """parameters: None when they cannot be counted. source: where name and number come from."""

    name: str
    parameters: int | None
    source: str


def base_model(home: Home) -> BaseModel:
    """The newest run's base model; before the first run, the default one."""
    for run in _newest_runs(home):
        if run.config.exists():
            config = yaml.safe_load(run.config.read_text(encoding="utf-8"))
            name = str(config["policy"]["model_name"])
            return BaseModel(name, count_parameters(name), f"as in run {run.run_id}")
    name = resolve_base_model("auto")
    return BaseModel(name, count_parameters(name), "the default")


def measured_checkpoint(home: Home) -> tuple[Checkpoint, RunDirectory, int] | None:
    """The newest checkpoint there is, its run, and its size in bytes."""
    for run in _newest_runs(home):
        checkpoint = newest_checkpoint(run.checkpoints)
        if checkpoint is not None:
            files = (file for file in checkpoint.path.rglob("*") if file.is_file())
            return checkpoint, run, sum(file.stat().st_size for file in files)
    return None


def count_parameters(name: str) -> int | None:
    """Parameters of a built-in model, of a local folder, or of a model in the Hugging Face cache; None when unknown."""
    if name in _BUILTIN:
        return _BUILTIN[name]
    folder = Path(name).expanduser() if Path(name).expanduser().is_dir() else _cached(name)
    files = sorted(folder.glob("*.safetensors")) if folder else []
    return sum(map(_parameters_in, files)) if files else None


def _parameters_in(file: Path) -> int:
    """Sum over the header's shapes: 8 bytes little-endian length, then JSON (the safetensors format)."""
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header = orjson.loads(stream.read(length))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def _cached(name: str) -> Path | None:
    """Newest snapshot of a hub model in the cache; nothing is downloaded."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    snapshots = (home / "hub" / f"models--{name.replace('/', '--')}" / "snapshots").glob("*")
    return max(snapshots, key=lambda folder: folder.stat().st_mtime, default=None)


def _newest_runs(home: Home) -> Iterator[RunDirectory]:
    return islice(RunStore(home.runs).all(), _NEWEST_RUNS)
