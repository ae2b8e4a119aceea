"""One state folder with a server, a fake tree and feedback: what a kill is aimed at, and what can be asked about it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg
import psutil

from nvtrader_rl_dagster.feedback.pair_report import iter_pairs
from nvtrader_rl_dagster.feedback.store import FeedbackStore
from nvtrader_rl_dagster.files import read_json, sha256_of
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.environment import PASS_VARIABLE
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunRecord, RunStore
from tests.kill.census import CENSUS_VARIABLE, Census
from tests.kill.server import Server

JOB = "feedback_to_champion"
WINDOW_TAG = "nvtrader/window"
THRESHOLD = 6
#: Seconds between a polite stop and a forced one in all these tests.
GRACE = 2.0
FAKES = Path(__file__).resolve().parents[1] / "fakes"
#: One more than the sensor asks for, so that a resumed run can be killed again.
MAX_RETRIES = "2"
FINAL = {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED}
SAVE_PERIOD = 3
#: Twelve steps, however the training was started; more than a stubborn trainer makes while it is being stopped.
OVERRIDES = (
    "policy.train_global_batch_size=8",
    "dpo.max_num_epochs=3",
    "dpo.max_num_steps=12",
    "dpo.val_global_batch_size=8",
    "dpo.val_batches=1",
    f"checkpointing.save_period={SAVE_PERIOD}",
    "checkpointing.save_optimizer=true",
)
_STARTED = re.compile(r"Started process for run \(pid: (\d+)\)")


@dataclass(frozen=True)
class Pace:
    """What the fake tree does next; see its `Plan`."""

    misbehave: bool
    start_seconds: float = 1.0
    step_seconds: float = 0.5
    save_seconds: float = 1.0

    @property
    def at_once(self) -> Pace:
        return Pace(self.misbehave, 0.0, 0.0, 0.0)


class LoopUnderTest:
    """The product on its own state folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = Home(root / "home")
        self.census = Census(root / "census.jsonl")
        self._plan = root / "plan.json"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DAGSTER", "NVTRADER", "PREFERENCE"))}
        self.server = Server(
            {
                **kept,
                "NVTRADER_RL_HOME": str(self.home.root),
                "NVTRADER_RL_CACHE": str(root / "cache"),
                "NVTRADER_RL_BACKEND": "nemo_rl",
                "NVTRADER_NEMORL_PYTHON": sys.executable,
                "NVTRADER_NEMORL_SRC": str(FAKES / "misbehaving_tree"),
                "NVTRADER_RL_BASE_MODEL": "builtin:tiny",
                "NVTRADER_RL_GRACE": str(GRACE),
                "NVTRADER_RL_RETRY_PAIRS": "2",
                "PREFERENCE_THRESHOLD": str(THRESHOLD),
                "NVTRADER_FAKE_PLAN": str(self._plan),
                CENSUS_VARIABLE: str(self.census.file),
                # The fake tree is told how to behave by variables that no real trainer needs.
                PASS_VARIABLE: f"NVTRADER_FAKE_PLAN,{CENSUS_VARIABLE}",
                "OMP_NUM_THREADS": "1",
                "COLUMNS": "200",
            },
            root / "up.log",
        )

    @cached_property
    def instance(self) -> dg.DagsterInstance:
        """Dagster's database, read directly: it answers while the server is down."""
        return dg.DagsterInstance.from_config(str(self.home.root / "dagster"))

    def close(self) -> None:
        self.server.stop()
        for _ in self.census.kill():
            pass

    def set_pace(self, pace: Pace, *overrides: str) -> None:
        """Holds for trainers that start from now on."""
        temporary = self._plan.with_suffix(".new")
        plan = {**asdict(pace), "overrides": [*OVERRIDES, *overrides]}
        temporary.write_text(json.dumps(plan), encoding="utf-8")
        temporary.replace(self._plan)

    def launch(self) -> str | None:
        """Launch the whole loop from the launchpad; the id of its Dagster run, None when the server cannot now."""
        return self.server.launch(JOB, {}, {"dagster/max_retries": MAX_RETRIES})

    # Dagster runs

    def status(self, run_id: str) -> dg.DagsterRunStatus:
        run = self.instance.get_run_by_id(run_id)
        assert run is not None, run_id
        return run.status

    def runs(self) -> list[dg.DagsterRun]:
        """Runs of the training job, oldest first."""
        return list(self.instance.get_runs(filters=dg.RunsFilter(job_name=JOB)))[::-1]

    def first_run(self, run_id: str) -> str:
        """The first run of a family."""
        run = self.instance.get_run_by_id(run_id)
        assert run is not None, run_id
        return run.root_run_id or run_id

    def family(self, run_id: str) -> list[dg.DagsterRun]:
        """A run, what it repeats and what repeats it, oldest first."""
        root = self.first_run(run_id)
        return [run for run in self.runs() if root in (run.run_id, run.root_run_id)]

    def events(self, run_id: str) -> list[dg.EventLogEntry]:
        return list(self.instance.all_logs(run_id))

    def happened(self, run_id: str, kind: dg.DagsterEventType, step: str | None = None) -> float | None:
        """When the first such event of the run (and step) was stored; None when there is none."""
        for entry in self.events(run_id):
            event = entry.dagster_event
            if event and event.event_type == kind and step in (None, event.step_key):
                return entry.timestamp
        return None

    def worker(self, run_id: str) -> psutil.Process:
        """The process that executes a run's steps."""
        for entry in self.events(run_id):
            if match := _STARTED.search(entry.message or entry.user_message or ""):
                return psutil.Process(int(match.group(1)))
        raise AssertionError(f"run {run_id} has no process yet")

    # Trainings

    @property
    def run_store(self) -> RunStore:
        return RunStore(self.home.runs)

    def trainings(self, run_id: str) -> list[tuple[RunDirectory, RunRecord]]:
        """Run folders that belong to a Dagster run or its retries, newest first."""
        family = {run.run_id for run in self.family(run_id)}
        return [
            (directory, record)
            for directory in self.run_store.all()
            if (record := directory.record()).dagster_run_id in family
        ]

    def training(self, run_id: str) -> tuple[RunDirectory, RunRecord]:
        (found,) = self.trainings(run_id)
        return found

    def process_record(self, folder: Path) -> dict[str, Any]:
        record: dict[str, Any] = read_json(folder / "process.json")
        return record

    def supervised_folders(self) -> Iterator[Path]:
        """Folders with a launch, the one launched last first."""
        files = [*self.home.runs.glob("*/process.json"), *self.home.evals.glob("**/process.json")]
        for file in sorted(files, key=lambda path: path.stat().st_mtime, reverse=True):
            yield file.parent

    def supervisors(self) -> list[psutil.Process]:
        """Live supervisors on this state folder, known by their own environment."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if (
                    "nvtrader_rl_dagster.nemo_rl.supervisor" in process.cmdline()
                    and process.environ().get(CENSUS_VARIABLE) == str(self.census.file)
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.append(process)
        return found

    # What must not be lost

    def pairs(self) -> list[str]:
        """Ids of the usable pairs in the feedback store."""
        store = FeedbackStore(self.home.store_url)
        try:
            return sorted(pair.pair_id for pair in iter_pairs(store))
        finally:
            store.close()

    def champion(self) -> tuple[bytes, str]:
        """The pointer and the hash of the weights it points at."""
        file = self.home.champion / "champion.json"
        state = read_json(file)
        weights = Path(state["champions"][state["current"]]["path"])
        return file.read_bytes(), sha256_of(sorted(weights.glob("*.safetensors")))


def wait_until(condition: Callable[[], Any], seconds: float, what: str | Callable[[], Any], every: float = 0.1) -> Any:
    """The first true answer of `condition`. Fails with `what` when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        if answer := condition():
            return answer
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what() if callable(what) else what}"
        time.sleep(every)
