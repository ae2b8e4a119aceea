"""The ways in which a run can be ended or lose a part, each with what must come of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from enum import Enum

import dagster as dg
import psutil

from tests.kill.loop_under_test import LoopUnderTest, wait_until
from tests.kill.moments import Moment


class Kill(str, Enum):
    """What is done to the loop."""

    UI = "UI terminate"
    CLI = "CLI cancel"
    STEP = "SIGKILL step"
    SUPERVISOR = "SIGKILL supervisor"
    DAEMON = "SIGKILL daemon"
    CODE_SERVER = "SIGKILL code server"
    TREE = "SIGKILL whole tree"
    #: The tree with the supervisor and the trainer; what the trainer started is left to be found.
    TREE_AND_SUPERVISOR = "SIGKILL tree and supervisor"


class Fate(str, Enum):
    """What must become of the run."""

    CANCELLED = "cancelled"
    RESUMED = "resumed"
    GOES_ON = "goes on"


FATE = {
    Kill.UI: Fate.CANCELLED,
    Kill.CLI: Fate.CANCELLED,
    Kill.STEP: Fate.RESUMED,
    Kill.SUPERVISOR: Fate.RESUMED,
    Kill.DAEMON: Fate.GOES_ON,
    Kill.CODE_SERVER: Fate.GOES_ON,
    Kill.TREE: Fate.RESUMED,
    Kill.TREE_AND_SUPERVISOR: Fate.RESUMED,
}


def strike(loop: LoopUnderTest, kill: Kill, moment: Moment, run_id: str) -> None:
    """Do it, now."""
    blows: dict[Kill, Callable[[], None]] = {
        Kill.UI: lambda: _ui(loop, run_id),
        Kill.CLI: lambda: _cli(loop, moment, run_id),
        Kill.STEP: lambda: loop.worker(run_id).kill(),
        Kill.SUPERVISOR: lambda: _supervisor(loop),
        Kill.DAEMON: lambda: loop.server.part("daemon").kill(),
        Kill.CODE_SERVER: lambda: loop.server.part("code_server").kill(),
        Kill.TREE: lambda: _all(loop.server.tree()),
        Kill.TREE_AND_SUPERVISOR: lambda: _all([*loop.server.tree(), *_supervised(loop)]),
    }
    blows[kill]()


def _ui(loop: LoopUnderTest, run_id: str) -> None:
    assert loop.server.terminate(run_id) == "TerminateRunSuccess"


def _cli(loop: LoopUnderTest, moment: Moment, run_id: str) -> None:
    """Cancel the training. Where there is none (yet, or any more) that must be harmless; the UI then ends the run."""
    trainings = loop.trainings(run_id)
    if moment in (Moment.STARTED, Moment.STEPS, Moment.SAVE):
        (directory, _), *_ = trainings
        done = loop.server.command("runs", "cancel", directory.run_id)
        assert done.returncode == 0, done.stdout + done.stderr
        return
    ended = next(d for d in loop.run_store.all() if d.record().ended and d.record().state.value != "failed")
    before = (ended.path / "run.json").read_bytes()
    loop.server.command("runs", "cancel", ended.run_id)
    assert (ended.path / "run.json").read_bytes() == before
    assert loop.status(run_id) is dg.DagsterRunStatus.STARTED
    _ui(loop, run_id)
    # A second time: harmless, whatever it answers.
    loop.server.terminate(run_id)


def _supervisor(loop: LoopUnderTest) -> None:
    wait_until(loop.supervisors, 20, "no supervisor to kill", 0.02)
    _all(loop.supervisors())


def _supervised(loop: LoopUnderTest) -> list[psutil.Process]:
    """Supervisors and their trainers."""
    supervisors = loop.supervisors()
    return [*supervisors, *(child for supervisor in supervisors for child in supervisor.children())]


def _all(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
