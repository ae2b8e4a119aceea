"""A tree shaped like NeMo-RL's whose DPO script really trains, and misbehaves when its plan says so.

`NVTRADER_FAKE_PLAN` names a JSON file (`Plan`), `NVTRADER_FAKE_CENSUS` the file in which every process of this
tree writes itself down, one JSON line each, before it does anything else.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PLAN_VARIABLE = "NVTRADER_FAKE_PLAN"
CENSUS_VARIABLE = "NVTRADER_FAKE_CENSUS"
#: A process that even a broken product left behind goes by itself.
LONGEST_LIFE = 900.0
_STUBBORN = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Plan:
    """Seconds of delay before the start, in each step and inside each save; overrides are for the trainer's YAML."""

    misbehave: bool = True
    start_seconds: float = 0.0
    step_seconds: float = 0.0
    save_seconds: float = 0.0
    overrides: list[str] = field(default_factory=list)

    @classmethod
    def read(cls) -> Plan:
        return cls(**json.loads(Path(os.environ[PLAN_VARIABLE]).read_text(encoding="utf-8")))


def say_in_census(what: str, **more: Any) -> None:
    """Append one line about this process; a single write below the pipe size is not interleaved."""
    # Field 22 of stat, counted after the name: with the pid it identifies a process for ever.
    started = int(Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
    line = {"ts": time.time(), "what": what, "pid": os.getpid(), "started": started}
    line["launch"] = os.environ.get("NVTRADER_LAUNCH_ID")
    with Path(os.environ[CENSUS_VARIABLE]).open("a", encoding="utf-8") as census:
        census.write(json.dumps({**line, **more}) + "\n")


def live_on(role: str) -> None:
    """Ignore every polite signal, be counted, and stay."""
    for number in _STUBBORN:
        signal.signal(number, signal.SIG_IGN)
    say_in_census("started", role=role)
    end = time.monotonic() + LONGEST_LIFE
    while time.monotonic() < end:
        time.sleep(0.5)


def start_family() -> None:
    """A child, its grandchild in a session of its own, and a daemon that no longer has us as a parent."""
    if os.fork() == 0:
        for number in _STUBBORN:
            signal.signal(number, signal.SIG_IGN)
        # A fresh interpreter, as Ray's workers are: only the environment says whose it is.
        subprocess.Popen([sys.executable, "-c", _GRANDCHILD, __file__], start_new_session=True)
        live_on("child")
        os._exit(0)
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork() == 0:
            live_on("daemon")
        os._exit(0)
    os.waitpid(first, 0)


_GRANDCHILD = "import runpy, sys; runpy.run_path(sys.argv[1])['live_on']('grandchild')"


def slow_down(plan: Plan) -> None:
    """Make each step and each save of the embedded trainer last longer, and say when it is there."""
    from nvtrader_rl_dagster.local_trainer.checkpoints import CheckpointStore
    from nvtrader_rl_dagster.local_trainer.dpo import DpoTrainer

    update, save = DpoTrainer._update, CheckpointStore.save

    def slow_update(self: Any, batch: list[int]) -> Any:
        say_in_census("step", step=self.total_steps + 1)
        time.sleep(plan.step_seconds)
        return update(self, batch)

    def slow_save(self: Any, step: int, info: Any, config: Any, write_state: Any) -> Path:
        def slow_write(folder: Path) -> None:
            # The folder holds its small files and no weights yet: nobody may take it for a checkpoint.
            say_in_census("saving", step=step, folder=str(folder))
            time.sleep(plan.save_seconds)
            write_state(folder)

        return save(self, step, info, config, slow_write)

    DpoTrainer._update = slow_update
    CheckpointStore.save = slow_save


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True, type=Path)
    options, overrides = parser.parse_known_args()
    plan = Plan.read()
    if plan.misbehave:
        for number in _STUBBORN:
            signal.signal(number, signal.SIG_IGN)
    say_in_census("started", role="trainer")
    if plan.misbehave:
        start_family()
    time.sleep(plan.start_seconds)
    slow_down(plan)
    from nvtrader_rl_dagster.local_trainer.algorithms import run_algorithm

    say_in_census("training")
    run_algorithm("dpo", options.config, [*overrides, *plan.overrides])
    say_in_census("ended")


if __name__ == "__main__":
    main()
