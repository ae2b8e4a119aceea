"""`launch_run`: start a training from a complete NeMo-RL configuration, without Dagster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.backends import Backend, choose_trainer
from nvtrader_rl_dagster.nemo_rl.checkpoints import newest_checkpoint
from nvtrader_rl_dagster.nemo_rl.launch_files import Limits
from nvtrader_rl_dagster.nemo_rl.preflight.before_launch import before_launch
from nvtrader_rl_dagster.nemo_rl.preflight.case import Start
from nvtrader_rl_dagster.nemo_rl.preflight.settings import merged, read_config, resolved
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
    start: Start | str = Start.AUTO,
    pass_environment: Iterable[str] = (),
    home: Path | str | None = None,
) -> RunRecord:
    """Start a training and return its record at once; `get_run` and `tail_log` follow it.

    config: NeMo-RL's YAML as a mapping, or its file; `defaults` are merged in. Without
    `checkpointing.checkpoint_dir` and `logger.log_dir` the run folder takes them. The training ends with the calling
    process unless it is `detached`. Waits in state `queued` while another run holds the GPU, for `limits.lease_wait`
    seconds (by default it fails at once with `lease_held`).

    start: how checkpoints in `checkpoint_dir` are meant, see `Start`; `resume` goes on from them whatever they are.
    pass_environment: variables that the trainer gets besides the allow-list.

    Raises `BackendError` for an algorithm or a trainer that is not here, `CheckpointMismatchError` for a
    `checkpoint_dir` with another training's checkpoints, unless it is a resume or a fork, and `PreflightError` for
    what else would make the training fail; the run is then there, as failed.
    """
    settings: dict[str, Any] = read_config(config) if isinstance(config, Path) else merged(config, Path())
    trainer = choose_trainer(Backend(backend), algo, pass_environment=pass_environment)
    plain, _ = resolved(settings)
    own = plain.get("checkpointing.checkpoint_dir")
    how = Start(start)
    if resume and how is Start.AUTO and own and newest_checkpoint(Path(own)):
        how = Start.FORK
    if own and how is not Start.FORK:
        refuse_other_training(Path(own), dict(plain.values))
    state = Home.from_env(home)
    directory = RunStore(state.runs).create(algo, trainer.name, notes=[trainer.why])
    if own:
        Path(own).mkdir(parents=True, exist_ok=True)
        directory.checkpoints.symlink_to(Path(own).resolve(), target_is_directory=True)
    checkpointing = {**settings.get("checkpointing", {}), "checkpoint_dir": str(directory.checkpoints)}
    logger = {"log_dir": str(directory.path / "logs"), **settings.get("logger", {})}
    complete = {**settings, "checkpointing": checkpointing, "logger": logger}
    write_config(directory, complete)
    before_launch(directory, trainer, complete, start=how, cache=state.lengths)
    TrainingRun(directory, trainer, state.lease, limits or Limits()).start(detached)
    return directory.record()
