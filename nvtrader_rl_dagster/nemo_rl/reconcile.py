"""Brings the run folders back to the truth after somebody was killed."""

from __future__ import annotations

from pathlib import Path

from nvtrader_rl_dagster.nemo_rl.conclusion import conclude
from nvtrader_rl_dagster.nemo_rl.launch_files import ProcessRecord
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunStore
from nvtrader_rl_dagster.nemo_rl.sweep import sweep


def reconcile(runs: RunStore, lease: Path) -> list[str]:
    """End leftover processes, then conclude each run that nobody looks after any more; one sentence for each deed."""
    done = sweep(lease)
    for directory in runs.all():
        record = directory.record()
        if record.ended_for_good or is_looked_after(directory):
            continue
        record = conclude(directory)
        code = record.failure["code"] if record.failure else "trained"
        done.append(f"run {record.run_id} is {record.state.value} now ({code}); whoever ran it is gone")
    return done


def is_looked_after(directory: RunDirectory) -> bool:
    """Whether the supervisor of a run lives, or its owner, who would conclude or resume it."""
    launch = ProcessRecord.read(directory.path)
    if launch is not None:
        return launch.busy()
    creator = directory.record().creator
    return creator is not None and creator.alive()
