"""Going on from a checkpoint: which run may, and how its folder is made ready."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.nemo_rl.cancel import cancel_request
from nvtrader_rl_dagster.nemo_rl.checkpoints import newest_checkpoint
from nvtrader_rl_dagster.nemo_rl.conclusion import RESUMABLE, conclude
from nvtrader_rl_dagster.nemo_rl.launch_files import ProcessRecord
from nvtrader_rl_dagster.nemo_rl.metrics import forget_after
from nvtrader_rl_dagster.nemo_rl.processes import ProcessIdentity
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunRecord, RunState, RunStore

_POLL_SECONDS = 0.2
_RESUMABLE_WHEN_ASKED = frozenset({"disk_full", "time_limit", "stalled"})
#: Keys that make a checkpoint belong to a training: what is trained, on what, in which order.
_IDENTITY = (
    ("policy", "model_name"),
    ("policy", "train_global_batch_size"),
    ("data", "train"),
)


class CheckpointMismatchError(Exception):
    """`checkpoint_mismatch`: NeMo-RL would go on from checkpoints that another training made."""


def is_resumable(directory: RunDirectory, record: RunRecord, asked: bool = False) -> bool:
    """Whether a run crashed and may go on by itself; one that somebody cancelled never does.

    asked: somebody repeats the Dagster run, having made room on the disk, say.
    """
    codes = RESUMABLE | _RESUMABLE_WHEN_ASKED if asked else RESUMABLE
    if record.state not in (RunState.FAILED, RunState.STALLED) or record.failure is None:
        return False
    return record.failure["code"] in codes and cancel_request(directory.path) is None


def run_of(runs: RunStore, algo: str, dagster_run_id: str, patience_seconds: float) -> RunDirectory | None:
    """The training that a Dagster run started, concluded; None when it started none.

    Waits for its supervisor, which may still be giving the trainer its grace.
    """
    for directory in runs.all():
        record = directory.record()
        if record.algo == algo and record.dagster_run_id == dagster_run_id:
            launch = ProcessRecord.read(directory.path)
            deadline = time.monotonic() + patience_seconds
            while launch and launch.supervisor.alive() and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            conclude(directory)
            return directory
    return None


def prepare_resume(directory: RunDirectory, dagster_run_id: str | None) -> RunRecord:
    """Queue the run again. What a killed save left is removed: only complete checkpoints count."""
    for leftover in directory.checkpoints.glob("tmp_*"):
        shutil.rmtree(leftover, ignore_errors=True)
    checkpoint = newest_checkpoint(directory.checkpoints)
    forget_after(directory.metrics, checkpoint.step if checkpoint else 0)
    return directory.update(
        state=RunState.QUEUED,
        attempt=directory.record().attempt + 1,
        creator=ProcessIdentity.of(os.getpid()),
        dagster_run_id=dagster_run_id,
        ended=None,
        exit_code=None,
        failure=None,
    )


def refuse_other_training(checkpoints: Path, config: dict[str, Any]) -> None:
    """Raises `CheckpointMismatchError` when the newest checkpoint was made from another model or other data."""
    import yaml

    checkpoint = newest_checkpoint(checkpoints)
    if checkpoint is None or not (checkpoint.path / "config.yaml").exists():
        return
    before = yaml.safe_load((checkpoint.path / "config.yaml").read_text(encoding="utf-8"))
    for section, key in _IDENTITY:
        old, new = before.get(section, {}).get(key), config.get(section, {}).get(key)
        if old != new:
            raise CheckpointMismatchError(
                f"checkpoint_mismatch: {checkpoint.path} was trained with {section}.{key} = {old!r}, now it is "
                f"{new!r}; choose another checkpoint_dir, or ask for resume=True to go on from it all the same"
            )
