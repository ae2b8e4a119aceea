"""Stops everything that a supervisor started, and proves that it is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from nvtrader_rl_dagster.nemo_rl.processes import (
    LAUNCH_VARIABLE,
    all_pids,
    environment_of,
    parent_and_session,
    session_of,
)

_POLL_SECONDS = 0.05
_SETTLE_SECONDS = 1.0
_TERM_SECONDS = 2.0
_KILL_SECONDS = 10.0


class ProcessTree:
    """All processes of one launch, found in three ways that a child can hardly leave together.

    By descent (the supervisor is a subreaper, so orphans stay its children), by session, and by the launch id in the
    environment.
    """

    def __init__(self, launch_id: str, supervisor: int, idle: Callable[[], None]) -> None:
        self._launch = launch_id.encode()
        self._supervisor = supervisor
        self._idle = idle

    def members(self) -> list[int]:
        """Pids that run now, the supervisor and zombies left out."""
        parents: dict[int, int] = {}
        found = set()
        for pid in all_pids():
            where = parent_and_session(pid)
            if where is None:
                continue
            parents[pid], session = where
            if session == self._supervisor or environment_of(pid).get(LAUNCH_VARIABLE.encode()) == self._launch:
                found.add(pid)
        ours = {self._supervisor}
        while grown := {pid for pid, parent in parents.items() if parent in ours} - ours:
            ours |= grown
        return sorted((found | ours) - {self._supervisor})

    def stop(self, trainer: int | None, grace_seconds: float) -> list[int]:
        """SIGINT to the trainer's group and grace, then SIGTERM, then SIGKILL to all; what even that did not end."""
        if trainer is not None:
            _signal_group(trainer, signal.SIGINT)
            self._wait(lambda: session_of(trainer) is None, grace_seconds)
            if session_of(trainer) is None:
                # Workers end with their driver, or do not.
                self._wait(lambda: not self.members(), _SETTLE_SECONDS)
        return self.clear()

    def clear(self) -> list[int]:
        """SIGTERM and SIGKILL to all that is left; what even that did not end."""
        self._signal_all(signal.SIGTERM)
        self._wait(lambda: not self.members(), _TERM_SECONDS)
        deadline = time.monotonic() + _KILL_SECONDS
        # Again and again: a process may fork while it is being killed.
        while (left := self.members()) and time.monotonic() < deadline:
            self._signal_all(signal.SIGKILL)
            self._wait(lambda: not self.members(), 0.5)
        return left

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def _wait(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            self._idle()
            time.sleep(_POLL_SECONDS)
        self._idle()


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
