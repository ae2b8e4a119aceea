"""Starts real children under a real supervisor: the helper of the process tests."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson
import psutil

from nvtrader_rl_dagster.nemo_rl.launch_files import Limits, ProcessRecord
from nvtrader_rl_dagster.nemo_rl.processes import launches
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunStore
from nvtrader_rl_dagster.nemo_rl.supervised import SupervisedProcess

#: Ignores what it can, and forks: a worker in its group, and a daemon in a session of its own without our environment.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)
deaf = "import os, signal, time; signal.signal(2, signal.SIG_IGN); signal.signal(15, signal.SIG_IGN); "
worker = subprocess.Popen([sys.executable, "-c", deaf + "time.sleep(300)"])
daemon = "os.setsid(); pid = os.fork(); print(pid or os.getpid(), flush=True) if pid else None; time.sleep(300)"
hidden = subprocess.Popen([sys.executable, "-u", "-c", deaf + daemon], env={}, stdout=subprocess.PIPE, text=True)
print("pids", os.getpid(), worker.pid, hidden.pid, hidden.stdout.readline().strip(), flush=True)
"""
STEP = (
    'print("=" * 25 + " Step 1/1 " + "=" * 25); '
    'print("📊 Training Results:\\n  • loss: 0.6931\\n\\n⏱️  Timing:", flush=True)\n'
)
CHECKPOINT = """
import json, pathlib
folder = pathlib.Path("checkpoints") / "step_1"
weights = folder / "policy/weights/model/consolidated"
weights.mkdir(parents=True)
(weights / "config.json").write_text("{}"); (weights / "model.safetensors").write_bytes(b"weights")
(folder / "training_info.json").write_text("{}")
"""


@dataclass(frozen=True)
class Workplace:
    """A state folder with its lease."""

    root: Path

    @property
    def lease(self) -> Path:
        return self.root / "gpu.lease"

    @property
    def runs(self) -> RunStore:
        return RunStore(self.root / "runs")

    def new_run(self, **fields: object) -> RunDirectory:
        directory = self.runs.create("dpo", "local", **fields)
        directory.config.write_text("policy: {model_name: 'builtin:tiny'}\n")
        return directory

    def start(
        self, code: str, directory: RunDirectory | None = None, detached: bool = False, **limits: object
    ) -> SupervisedProcess:
        """Run Python code as the trainer of a run, in the run's folder."""
        directory = directory or self.new_run()
        script = directory.path / "trainer.py"
        script.write_text(textwrap.dedent(code), encoding="utf-8")
        return SupervisedProcess(
            directory,
            [sys.executable, "-u", str(script)],
            os.environ,
            self.lease,
            Limits(**{"grace": 1.0, **limits}),  # type: ignore[arg-type]
            cwd=directory.path,
            detached=detached,
        )

    def nothing_left(self) -> bool:
        return not launches(self.lease)


def log(directory: RunDirectory) -> list[dict]:
    return [orjson.loads(line) for line in directory.log.read_bytes().splitlines()] if directory.log.exists() else []


def said(directory: RunDirectory, text: str) -> bool:
    return any(text in row["text"] for row in log(directory))


def pids(directory: RunDirectory) -> list[int]:
    """What `STUBBORN` says about itself."""
    wait_for(lambda: said(directory, "pids"))
    return [int(pid) for row in log(directory) if "pids" in row["text"] for pid in row["text"].split()[1:]]


def supervisor(directory: RunDirectory) -> int:
    wait_for(lambda: ProcessRecord.read(directory.path) is not None)
    record = ProcessRecord.read(directory.path)
    assert record is not None
    return record.supervisor.pid


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)


def gone(*pids: int) -> bool:
    return not any(_lives(pid) for pid in pids)


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:  # also when it ends between the two questions
        return False
