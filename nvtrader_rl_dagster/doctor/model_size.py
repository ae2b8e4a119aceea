"""How large the next training's model is, without loading it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import yaml

from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.checkpoints import Checkpoint, newest_checkpoint
from nvtrader_rl_dagster.nemo_rl.configs import resolve_base_model
from nvtrader_rl_dagster.nemo_rl.model_files import count_parameters
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunStore

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


def _newest_runs(home: Home) -> Iterator[RunDirectory]:
    return islice(RunStore(home.runs).all(), _NEWEST_RUNS)
