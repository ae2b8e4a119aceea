"""What a tick of `preference_threshold` costs in a store of 1,000 and of 1,000,000 events: CPU and wall milliseconds.

    python benchmarks/sensor_tick.py [--events 1000000] [--rounds 30]

The whole sensor function with a real Dagster instance, as the code server calls it. The gate of the house is 1.5 x.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg

from nvtrader_rl_dagster.feedback.events import preference
from nvtrader_rl_dagster.feedback.store import FeedbackStore
from nvtrader_rl_dagster.feedback.trigger import Cursor
from nvtrader_rl_dagster.home import HOME_VARIABLE, Home
from nvtrader_rl_dagster.nemo_rl.runs import RunState, RunStore, timestamp
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.feedback import FeedbackResource
from nvtrader_rl_dagster.sensors.threshold import preference_threshold

SMALL, NEW = 1000, 20
TEXT = "The fund rose with rates; duration was cut in week {n}. " * 3


class Box:
    """A state folder whose feedback was trained up to `NEW` events before its end."""

    def __init__(self, folder: Path, events: int) -> None:
        self.home, self.events = Home(folder), events
        store = FeedbackStore(self.home.store_url)
        store.append(
            preference(TEXT.format(n=n), f"good {n}", f"bad {n}", event_id=f"{n}", ts="2026-01-01T00:00:00Z")
            for n in range(events)
        )
        self.ledger_id = store.ledger_id
        store.close()
        RunStore(self.home.runs).create(
            "dpo", "local", ledger_id=self.ledger_id, trained_through_seq=events - NEW
        ).update(state=RunState.SUCCEEDED, ended=timestamp())

    def cursor(self, back: int) -> str:
        """A cursor that has counted up to `back` events before the end."""
        base, seq = self.events - NEW, self.events - back
        return Cursor(self.ledger_id, base=base, seq=seq, pending=seq - base, fired=base, newer=seq - base).dump()

    def tick(self, instance: dg.DagsterInstance, cursor: str | None) -> None:
        os.environ[HOME_VARIABLE] = str(self.home.root)
        context = dg.build_sensor_context(instance=instance, cursor=cursor)
        result = preference_threshold(context, feedback=FeedbackResource(), artifacts=ArtifactStore())
        expected = f"{NEW} of 50 usable pairs"
        if result.skip_reason is None or result.skip_reason.skip_message != expected:
            raise SystemExit(f"expected {expected!r}, found {result}")


def milliseconds(work: Callable[[], None]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return (time.process_time() - cpu) * 1000, (time.perf_counter() - wall) * 1000


def compare(name: str, rounds: int, small: Callable[[], None], large: Callable[[], None]) -> None:
    for work in (small, large):
        work()
    # Alternating, so that a change of the machine's load meets both.
    measured = [(milliseconds(small), milliseconds(large)) for _ in range(rounds)]
    texts = []
    for kind, which in (("CPU", 0), ("wall", 1)):
        columns = [[pair[side][which] for pair in measured] for side in (0, 1)]
        low, middle = [min(c) for c in columns], [statistics.median(c) for c in columns]
        texts.append(
            f"{kind} min {low[0]:.1f} and {low[1]:.1f} ms = {low[1] / low[0]:.2f} x, "
            f"median {middle[0]:.1f} and {middle[1]:.1f} ms = {middle[1] / middle[0]:.2f} x"
        )
    print(f"{name}: " + "; ".join(texts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, dg.DagsterInstance.local_temp(folder) as instance:
        boxes = [Box(Path(folder) / str(events), events) for events in (SMALL, options.events)]
        ticks: dict[str, list[str | None]] = {
            "idle tick": [box.cursor(0) for box in boxes],
            f"tick with {NEW} new events": [box.cursor(NEW) for box in boxes],
            "tick without a cursor": [None, None],
        }
        print(f"{SMALL} and {options.events} events:")
        for name, cursors in ticks.items():
            works = [lambda b=box, c=cursor: b.tick(instance, c) for box, cursor in zip(boxes, cursors, strict=True)]
            compare(name, options.rounds, *works)


if __name__ == "__main__":
    main()
