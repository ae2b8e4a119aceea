"""Everybody who may end a launch: its owner through a pipe, a cancel request, a signal."""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

from nvtrader_rl_dagster.nemo_rl.cancel import cancel_request
from nvtrader_rl_dagster.nemo_rl.launch_files import Launch, Reason


class Lifeline:
    """Watches for reasons to stop, in the supervisor's main thread.

    The owner holds the other end of our standard input: `cancel` on it is a wish, its end is the owner's end.
    """

    def __init__(self, folder: Path, launch: Launch) -> None:
        self._folder = folder
        self._owner = launch.owner
        self._pipe: int | None = None if launch.owner is None else sys.stdin.fileno()
        self._woken, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._signalled = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        # The end of the trainer ends a wait at once.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup)

    def asked_to_stop(self, seconds: float) -> Reason | None:
        """The first reason within `seconds`; returns early when a child has ended."""
        watched = [self._woken] if self._pipe is None else [self._woken, self._pipe]
        ready = select.select(watched, [], [], seconds)[0]
        if self._woken in ready:
            os.read(self._woken, 512)
        if self._pipe in ready:
            return Reason.CANCELLED if os.read(self._pipe, 64).startswith(b"cancel") else Reason.OWNER_GONE
        # A copy of the pipe in a forked child of the owner would keep it open.
        if self._owner is not None and os.getppid() != self._owner.pid:
            return Reason.OWNER_GONE
        if self._signalled:
            return Reason.TERMINATED
        return Reason.CANCELLED if cancel_request(self._folder) else None

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._signalled = True
