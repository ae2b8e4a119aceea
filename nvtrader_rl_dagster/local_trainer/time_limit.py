"""The time limit of a run: ``checkpointing.checkpoint_must_save_by``."""

from __future__ import annotations

import time


class TimeLimit:
    """The time is up when the next step, at the mean pace, would end after it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.start = time.monotonic()
        self.steps = 0

    def reached_after_step(self) -> bool:
        self.steps += 1
        elapsed = time.monotonic() - self.start
        return elapsed + elapsed / self.steps >= self.seconds
