"""The stdout lines of NeMo-RL 0.6.0, each flushed at once because a launcher reads them while training runs."""

from __future__ import annotations

import pprint
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


def say(text: str = "") -> None:
    """Print one line (or block) and flush it."""
    print(text, flush=True)


def warn(text: str) -> None:
    """Print a warning line."""
    say(f"  ⚠️ {text}")


def show_config(path: str, overrides: list[str], config: Mapping[str, Any]) -> None:
    """Say which file and overrides made the config, and the config itself."""
    say(f"Loaded configuration from: {path}")
    if overrides:
        say(f"Overrides: {overrides}")
    say("Applied CLI overrides")
    say("Final config:")
    say(pprint.pformat(dict(config)))


def show_setup_complete() -> None:
    say("\n" + "=" * 60)
    say(" " * 18 + "SETUP COMPLETE")
    say("=" * 60 + "\n")


def show_epoch(epoch: int, epochs: int) -> None:
    """Header of an epoch; both numbers count from 1."""
    say(f"\n{'=' * 25} Epoch {epoch}/{epochs} {'=' * 25}")


def show_step(step: int, steps: int) -> None:
    """Header of a step; it counts from 1 and starts again in each epoch."""
    say(f"\n{'=' * 25} Step {step}/{steps} {'=' * 25}")


def show_validation(name: str, metrics: Mapping[str, float], seconds: float) -> None:
    """Results of one validation set."""
    say(f"\n📊 Validation Results for `{name}` set:")
    for metric, value in metrics.items():
        say(f"    • Validation {metric}: {value:.4f}")
    say(f"\n  ⏱️  Validation Timing for `{name}` set:")
    say(f"    • Total validation time: {seconds:.2f}s")


def show_training(metrics: Mapping[str, float], timer: StepTimer) -> None:
    """Results and timing of one step."""
    say("\n📊 Training Results:")
    for metric, value in metrics.items():
        say(f"  • {metric}: {value:.4f}")
    total = timer.seconds["total_step_time"]
    say("\n⏱️  Timing:")
    say(f"  • Total step time: {total:.2f}s")
    parts = sorted(timer.seconds.items(), key=lambda item: item[1], reverse=True)
    for label, seconds in parts:
        if label != "total_step_time":
            say(f"  • {label}: {seconds:.2f}s ({100 * seconds / total if total > 0 else 0:.1f}%)")


class StepTimer:
    """Seconds spent under each label since the timer was made."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def time(self, label: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[label] += time.perf_counter() - start


class ProgressLine:
    """``  ✓ LABEL: done/total pairs``, at most about twenty times."""

    def __init__(self, label: str, total: int) -> None:
        self.label, self.total = label, total
        self._next = 0.0

    def show(self, done: int) -> None:
        """Print when another twentieth is done, and at the end."""
        if done >= self._next or done == self.total:
            self._next = done + self.total / 20
            say(f"  ✓ {self.label}: {done}/{self.total} pairs")
