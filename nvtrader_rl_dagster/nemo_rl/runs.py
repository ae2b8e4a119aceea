"""The run directory: one folder per training run, `run.json` always whole, readable after any crash."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.files import read_json, write_json
from nvtrader_rl_dagster.nemo_rl.processes import ProcessIdentity

_RUN_ID = re.compile(r"[a-z0-9_]+-\d{8}-\d{6}-[0-9a-f]{6}")


class RunState(str, Enum):
    """States of a training run; the last four are final once the run has ended."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    STALLED = "stalled"


FINAL = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.STALLED})


@dataclass(frozen=True)
class RunRecord:
    """Content of `run.json`. Times are ISO 8601 in UTC.

    options: what was asked for, before it became a configuration. creator: the process that made the folder; it
    looks after the run until a supervisor does.
    """

    run_id: str
    algo: str
    backend: str
    state: RunState
    created: str
    attempt: int = 1
    started: str | None = None
    ended: str | None = None
    options: dict[str, Any] | None = None
    config_hash: str | None = None
    data_hash: str | None = None
    ledger_id: str | None = None
    trained_through_seq: int | None = None
    validation_fraction: float | None = None
    dagster_run_id: str | None = None
    exit_code: int | None = None
    failure: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
    creator: ProcessIdentity | None = None

    @property
    def ended_for_good(self) -> bool:
        """Whether nothing more will happen; a stalled run that only warns still goes on."""
        return self.state in FINAL and self.ended is not None


@dataclass(frozen=True)
class RunDirectory:
    """One run's files. Paths only; nothing is created by asking."""

    path: Path

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def log(self) -> Path:
        return self.path / "log.jsonl"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def record(self) -> RunRecord:
        """The current record. Raises `FileNotFoundError` when the folder holds no run."""
        raw = read_json(self.path / "run.json")
        creator = ProcessIdentity.from_dict(raw.get("creator"))
        return RunRecord(**{**raw, "state": RunState(raw["state"]), "creator": creator})

    def save(self, record: RunRecord) -> None:
        write_json(self.path / "run.json", asdict(record))

    def update(self, **changes: Any) -> RunRecord:
        """Replace fields of the record atomically and return the new one."""
        record = replace(self.record(), **changes)
        self.save(record)
        return record

    def fail(self, code: str, line: str, advice: str = "") -> RunRecord:
        """End a run that never came to be launched."""
        failure = {"code": code, "line": line, "advice": advice}
        return self.update(state=RunState.FAILED, ended=timestamp(), failure=failure)


@dataclass(frozen=True)
class RunStore:
    """All runs below `<home>/nemo_rl/runs`."""

    root: Path

    def create(self, algo: str, backend: str, **fields: Any) -> RunDirectory:
        """A new run directory in state `queued`. Its id sorts by creation time."""
        now = datetime.now(timezone.utc)
        directory = RunDirectory(self.root / f"{algo}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}")
        directory.path.mkdir(parents=True)
        directory.save(
            RunRecord(
                run_id=directory.run_id,
                algo=algo,
                backend=backend,
                state=RunState.QUEUED,
                created=timestamp(now),
                creator=ProcessIdentity.of(os.getpid()),
                **fields,
            )
        )
        return directory

    def get(self, run_id: str) -> RunDirectory:
        """The run with this id. Raises `KeyError` for an id that is no run of ours."""
        directory = RunDirectory(self.root / run_id)
        if not _RUN_ID.fullmatch(run_id) or not (directory.path / "run.json").exists():
            raise KeyError(f"no training run {run_id!r} in {self.root}")
        return directory

    def all(self) -> Iterator[RunDirectory]:
        """Runs, newest first. A folder without `run.json` (a launch that died at once) is passed over."""
        if not self.root.is_dir():
            return
        folders = sorted(self.root.iterdir(), key=lambda p: p.name.split("-", 1)[-1], reverse=True)
        for folder in folders:
            if _RUN_ID.fullmatch(folder.name) and (folder / "run.json").exists():
                yield RunDirectory(folder)

    def newest(self, algo: str, state: RunState = RunState.SUCCEEDED) -> RunDirectory | None:
        """The newest run of an algorithm in the given state."""
        for run in self.all():
            record = run.record()
            if record.algo == algo and record.state is state:
                return run
        return None


def timestamp(moment: datetime | None = None) -> str:
    """ISO 8601 in UTC to the millisecond."""
    moment = moment or datetime.now(timezone.utc)
    return moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
