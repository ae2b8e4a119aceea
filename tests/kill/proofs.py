"""What must hold after a kill, each as one function that fails with what was found instead."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass

import dagster as dg
import orjson

from nvtrader_rl_dagster.nemo_rl.checkpoints import newest_checkpoint
from nvtrader_rl_dagster.nemo_rl.lease import lease_holder
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunState
from tests.kill.loop_under_test import GRACE, WINDOW_TAG, LoopUnderTest, wait_until
from tests.kill.record import KillRecord

#: After the kill, for everything of the launch to be gone.
CLEAN_SECONDS = GRACE + 10
_RESUMED = re.compile(r"Resuming from \S+/step_(\d+) after step \1\b")
_OPEN = (RunState.QUEUED, RunState.RUNNING)


def since(moment: float) -> float:
    """Seconds since a moment of the monotonic clock."""
    return round(time.monotonic() - moment, 2)


def nothing_left(
    loop: LoopUnderTest,
    struck: float,
    launches: set[str] | None,
    record: KillRecord | None = None,
    seconds: float = CLEAN_SECONDS,
) -> None:
    """In time: no process of these launches (None: of any), and none of them holds the lease."""

    def left() -> dict[int, str]:
        return loop.census.alive() if launches is None else loop.census.of_launches(launches)

    def free() -> bool:
        holder = lease_holder(loop.home.lease)
        return holder is None or (launches is not None and holder.get("launch_id") not in launches)

    wait_until(lambda: not left(), seconds - since(struck), lambda: f"still alive: {left()}", 0.05)
    gone = since(struck)
    wait_until(free, seconds - since(struck), lambda: f"lease: {lease_holder(loop.home.lease)}", 0.05)
    if record:
        record.nothing_left, record.lease_free = gone, since(struck)


@dataclass(frozen=True)
class Standing:
    """What a training had when it was killed. attempt: None when no unfinished training was there."""

    attempt: int | None
    checkpoint: int

    @classmethod
    def of(cls, loop: LoopUnderTest, run_id: str) -> Standing:
        unfinished = [(d, t) for d, t in loop.trainings(run_id) if t.state in _OPEN]
        found = [newest_checkpoint(directory.checkpoints) for directory, _ in unfinished]
        steps = [checkpoint.step for checkpoint in found if checkpoint]
        return cls(unfinished[0][1].attempt if unfinished else None, max(steps, default=0))


def resumed(loop: LoopUnderTest, run_id: str, before: Standing) -> None:
    """The killed training has gone on from its newest complete checkpoint, as its next attempt."""
    directory, training = loop.training(run_id)
    assert training.attempt == (before.attempt or 0) + 1, training
    launch = loop.process_record(directory.path)["launch_id"]
    said = _RESUMED.findall(_log(directory))
    resumed_at = int(said[-1]) if said else 0
    assert resumed_at >= before.checkpoint, f"resumed after step {resumed_at}, not {before.checkpoint}"
    # A stubborn trainer may have saved once more while it was being stopped; nothing less counts.
    saved = {
        line["step"]
        for line in loop.census.lines("saving")
        if line["launch"] != launch and line["folder"].startswith(str(directory.path))
    }
    assert resumed_at in {0, *saved}, f"resumed after step {resumed_at}, which was never saved"
    steps = [line["step"] for line in loop.census.lines("step", launch)]
    assert steps[:1] == [resumed_at + 1], f"went on with steps {steps} after a checkpoint at {resumed_at}"
    assert not list(directory.checkpoints.glob("tmp_*")), "an unfinished save was left"


def no_double_training(loop: LoopUnderTest, expected: dict[str, int]) -> None:
    """Each family of runs, by its first run, made exactly so many models; each window of feedback at most one."""
    runs = {run.run_id: run for run in loop.runs()}
    models: Counter[str] = Counter()
    windows: Counter[str] = Counter()
    for directory in loop.run_store.all():
        training = directory.record()
        if training.state is RunState.SUCCEEDED:
            run = runs[training.dagster_run_id or ""]
            models[run.root_run_id or run.run_id] += 1
            if window := run.tags.get(WINDOW_TAG):
                windows[window] += 1
    for run_id, count in expected.items():
        assert models[run_id] == count, f"run {run_id} has {models[run_id]} trained models, not {count}"
    assert not [window for window, count in windows.items() if count > 1], windows
    cancelled = {run.run_id for run in runs.values() if run.status is dg.DagsterRunStatus.CANCELED}
    again = [run.run_id for run in runs.values() if run.parent_run_id in cancelled]
    assert not again, f"cancelled runs were retried: {again}"


def _log(directory: RunDirectory) -> str:
    return "\n".join(orjson.loads(line)["text"] for line in directory.log.read_bytes().splitlines())
