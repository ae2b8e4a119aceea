"""`launch_run`: start a training from a complete NeMo-RL configuration, without Dagster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.backends import Backend, choose_trainer
from nvtrader_rl_dagster.nemo_rl.launch_files import Limits
from nvtrader_rl_dagster.nemo_rl.resume import refuse_other_training
from nvtrader_rl_dagster.nemo_rl.runs import RunRecord, RunStore
from nvtrader_rl_dagster.nemo_rl.training import TrainingRun, write_config


def launch_run(
    algo: str,
    config: Mapping[str, Any] | Path,
    *,
    backend: Backend | str = Backend.AUTO,
    limits: Limits | None = None,
    detached: bool = False,
    resume: bool = False,
    home: Path | str | None = None,
) -> RunRecord:
    """Start a training and return its record at once; `get_run` and `tail_log` follow it.

    config: NeMo-RL's YAML as a mapping, or its file. Without `checkpointing.checkpoint_dir` and `logger.log_dir`
    the run folder takes them. The training ends with the calling process unless it is `detached`. Waits in state
    `queued` while another run holds the GPU, for `limits.lease_wait` seconds (by default it fails at once with
    `lease_held`).

    Raises `BackendError` for an algorithm or a trainer that is not here, and `CheckpointMismatchError` for a
    `checkpoint_dir` with another training's checkpoints, unless `resume` is set.
    """
    settings: dict[str, Any] = (
        yaml.safe_load(config.read_text(encoding="utf-8")) if isinstance(config, Path) else dict(config)
    )
    trainer = choose_trainer(Backend(backend), algo)
    own = settings.get("checkpointing", {}).get("checkpoint_dir")
    if own and not resume:
        refuse_other_training(Path(own), settings)
    state = Home.from_env(home)
    directory = RunStore(state.runs).create(algo, trainer.name, notes=[trainer.why])
    if own:
        Path(own).mkdir(parents=True, exist_ok=True)
        directory.checkpoints.symlink_to(Path(own).resolve(), target_is_directory=True)
    checkpointing = {**settings.get("checkpointing", {}), "checkpoint_dir": str(directory.checkpoints)}
    logger = {"log_dir": str(directory.path / "logs"), **settings.get("logger", {})}
    write_config(directory, {**settings, "checkpointing": checkpointing, "logger": logger})
    TrainingRun(directory, trainer, state.lease, limits or Limits()).start(detached)
    return directory.record()
