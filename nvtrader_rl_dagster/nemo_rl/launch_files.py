"""The files through which an owner and a supervisor talk: `launch.json`, `process.json`, `exit.json`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.files import read_json, write_json
from nvtrader_rl_dagster.nemo_rl.processes import ProcessIdentity

_LAUNCH, _PROCESS, _EXIT, _MEMBERS = "launch.json", "process.json", "exit.json", "members.json"
#: Bytes kept back, so that the end of a run can be written down on a full disk.
RESERVE_FILE = ".reserve"
RESERVE_BYTES = 1 << 18


class StallPolicy(str, Enum):
    """What happens to a training that stopped making steps."""

    WARN = "warn"
    KILL = "kill"


class Reason(str, Enum):
    """Why a launch ended."""

    EXITED = "exited"
    CANCELLED = "cancelled"
    OWNER_GONE = "owner_gone"
    TERMINATED = "terminated"
    TIME_LIMIT = "time_limit"
    STALLED = "stalled"
    LEASE_HELD = "lease_held"
    FOREIGN_RAY = "foreign_ray"
    NOT_STARTED = "not_started"
    #: Never written by a supervisor: what a reader makes of a missing `exit.json`.
    SUPERVISOR_DIED = "supervisor_died"


@dataclass(frozen=True)
class Limits:
    """How long things may take, in seconds; None is no limit.

    grace: between a polite stop and a forced one. run: the whole training. stall: without a new step.
    lease_wait: for the GPU to become free.
    """

    grace: float = 20.0
    run: float | None = None
    stall: float | None = None
    stall_policy: StallPolicy = StallPolicy.KILL
    lease_wait: float = 0.0


@dataclass(frozen=True)
class Launch:
    """What a supervisor is asked to run. The environment is inherited, never written down: it holds secrets.

    owner: the process whose end ends the launch; None for a detached one. uses_ray: it must not start beside
    somebody else's Ray cluster, which it would join. pythonpath: the trainer's, which is not the supervisor's.
    """

    launch_id: str
    command: list[str]
    cwd: str | None
    lease: str
    limits: Limits
    owner: ProcessIdentity | None
    attempt: int = 1
    uses_ray: bool = False
    pythonpath: str | None = None

    def write(self, folder: Path) -> Path:
        (folder / RESERVE_FILE).write_bytes(bytes(RESERVE_BYTES))
        write_json(folder / _LAUNCH, asdict(self))
        return folder / _LAUNCH

    @classmethod
    def read(cls, file: Path) -> Launch:
        raw = read_json(file)
        limits = {**raw["limits"], "stall_policy": StallPolicy(raw["limits"]["stall_policy"])}
        return cls(**{**raw, "limits": Limits(**limits), "owner": ProcessIdentity.from_dict(raw["owner"])})


@dataclass(frozen=True)
class ProcessRecord:
    """Who runs a launch. sid: the session of all that it starts. ray_tmp: its own folder for Ray."""

    launch_id: str
    attempt: int
    supervisor: ProcessIdentity
    owner: ProcessIdentity | None
    trainer: ProcessIdentity | None
    sid: int
    ray_tmp: str
    lease: str

    def write(self, folder: Path) -> None:
        write_json(folder / _PROCESS, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> ProcessRecord | None:
        """The newest launch in this folder; None when there was none."""
        if not (folder / _PROCESS).exists():
            return None
        raw = read_json(folder / _PROCESS)
        identities = {name: ProcessIdentity.from_dict(raw[name]) for name in ("supervisor", "owner", "trainer")}
        return cls(**{**raw, **identities})

    def busy(self) -> bool:
        """Whether somebody still looks after this launch: its supervisor, or the owner that would start it again."""
        return self.supervisor.alive() or (self.owner is not None and self.owner.alive())


@dataclass(frozen=True)
class Exit:
    """How a launch ended.

    exit_code: negative for a signal, None when nothing ran. left: processes that even SIGKILL did not end.
    lines: lines in the log. first_line: number of its first line there. lost_lines: lines that could not be written.
    tail: the last lines, cleaned.
    """

    launch_id: str
    reason: Reason
    exit_code: int | None = None
    detail: str = ""
    seconds: float = 0.0
    left: list[int] = field(default_factory=list)
    lines: int = 0
    first_line: int = 1
    lost_lines: int = 0
    tail: list[str] = field(default_factory=list)

    @property
    def killed(self) -> bool:
        """Whether it was killed by somebody else than its supervisor, so that it may be started again."""
        crashed = self.reason in (Reason.SUPERVISOR_DIED, Reason.TERMINATED)
        return crashed or (self.reason is Reason.EXITED and (self.exit_code or 0) < 0)

    def write(self, folder: Path) -> None:
        write_json(folder / _EXIT, asdict(self))

    @classmethod
    def read(cls, folder: Path, launch_id: str) -> Exit | None:
        """The end of this launch; None when it has not ended, or its supervisor was killed."""
        if not (folder / _EXIT).exists():
            return None
        raw: dict[str, Any] = read_json(folder / _EXIT)
        return cls(**{**raw, "reason": Reason(raw["reason"])}) if raw["launch_id"] == launch_id else None


def write_members(folder: Path, launch_id: str, members: list[ProcessIdentity]) -> None:
    """Note the processes of a running launch."""
    write_json(folder / _MEMBERS, {"launch_id": launch_id, "members": [asdict(member) for member in members]})


def read_members(folder: Path, launch_id: str) -> list[ProcessIdentity]:
    """The processes that a launch was last seen with."""
    try:
        raw = read_json(folder / _MEMBERS)
    except FileNotFoundError:
        return []
    return [ProcessIdentity(**member) for member in raw["members"]] if raw["launch_id"] == launch_id else []
