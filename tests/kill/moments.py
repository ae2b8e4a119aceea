"""The five moments of a run at which it is killed, and how each is recognised."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from enum import Enum
from pathlib import Path

import dagster as dg
import psutil

from tests.kill.loop_under_test import SAVE_PERIOD, LoopUnderTest, wait_until

#: The step in whose middle a run is killed: after the first checkpoint, before the second.
MIDDLE_STEP = SAVE_PERIOD + 2
#: The save in whose middle a run is killed.
SECOND_SAVE = 2 * SAVE_PERIOD
_QUICK = 0.03


class Moment(str, Enum):
    """Where a run is."""

    DATA = "data sets made"
    STARTED = "trainer started"
    STEPS = "middle of the steps"
    SAVE = "middle of a save"
    SCORE = "scoring"


def reach(loop: LoopUnderTest, run_id: str, moment: Moment, seconds: float = 180) -> None:
    """Wait until the run is there. Fails when it ends before."""
    conditions: dict[Moment, Callable[[], object]] = {
        Moment.DATA: lambda: loop.happened(run_id, dg.DagsterEventType.STEP_SUCCESS, "nemo_rl_dataset"),
        Moment.STARTED: lambda: _said(loop, run_id, "started"),
        Moment.STEPS: lambda: _said(loop, run_id, "step", MIDDLE_STEP),
        Moment.SAVE: lambda: _said(loop, run_id, "saving", SECOND_SAVE),
        Moment.SCORE: lambda: scorer(loop),
    }

    def reached() -> object:
        found = conditions[moment]()
        assert found or loop.status(run_id) not in (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED), (
            f"run {run_id} ended before the moment: {moment.value}\n{last_words(loop, run_id)}"
        )
        return found

    wait_until(reached, seconds, lambda: f"{moment.value} of {run_id}\n{last_words(loop, run_id)}", _QUICK)


def scorer(loop: LoopUnderTest) -> Path | None:
    """Folder in which a scorer is at work now."""
    for folder in loop.supervised_folders():
        if loop.home.evals in folder.parents and (trainer := loop.process_record(folder)["trainer"]):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(trainer["pid"])
                if "score" in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                    return folder
    return None


def last_words(loop: LoopUnderTest, run_id: str) -> str:
    """The end of a run's event log, for a failed test."""
    return "\n".join(
        f"{e.timestamp:.1f} {(e.message or e.user_message or '')[:400]}" for e in loop.events(run_id)[-12:]
    )


def _said(loop: LoopUnderTest, run_id: str, what: str, step: int | None = None) -> bool:
    for directory, _ in loop.trainings(run_id):
        if not (directory.path / "process.json").exists():
            continue
        launch = loop.process_record(directory.path)["launch_id"]
        if any(line.get("step") == step for line in loop.census.lines(what, launch)):
            return True
    return False
