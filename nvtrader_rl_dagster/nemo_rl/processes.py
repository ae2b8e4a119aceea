"""Who is alive: process identities that survive pid reuse and reboots, and everything that a launch left running."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psutil

LAUNCH_VARIABLE = "NVTRADER_LAUNCH_ID"
LEASE_VARIABLE = "NVTRADER_RL_LEASE"
SUPERVISOR_MODULE = "nvtrader_rl_dagster.nemo_rl.supervisor"

_STATE, _PARENT, _SESSION, _START = 0, 1, 3, 19  # fields of /proc/<pid>/stat behind the command name, see proc(5)


@dataclass(frozen=True)
class ProcessIdentity:
    """A process, told apart from a later one with the same pid.

    started: clock ticks between boot and its start. boot: the kernel's boot id.
    """

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """The process that has this pid now; None when there is none, or only a zombie."""
        fields = _stat(pid)
        if fields is None or fields[_STATE] == "Z":
            return None
        return cls(pid, int(fields[_START]), boot_id())

    @classmethod
    def from_dict(cls, raw: dict[str, Any] | None) -> ProcessIdentity | None:
        return cls(**raw) if raw else None

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return self.boot == boot_id() and self.of(self.pid) == self


def boot_id() -> str:
    """Identity of the running kernel: another one after a reboot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def session_of(pid: int) -> int | None:
    """Session id of a process; None when it is gone or a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[_STATE] == "Z" else int(fields[_SESSION])


def parent_and_session(pid: int) -> tuple[int, int] | None:
    """Parent pid and session id of a process; None when it is gone or a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[_STATE] == "Z" else (int(fields[_PARENT]), int(fields[_SESSION]))


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 (hot: no Path objects)


def environment_of(pid: int) -> dict[bytes, bytes]:
    """The environment a process was started with; empty when it is gone or another user's."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    return dict(item.split(b"=", 1) for item in raw.split(b"\0") if b"=" in item)


def launches(lease: Path) -> dict[str, list[psutil.Process]]:
    """Live processes below this lease, by launch id: supervisors, trainers and whatever they started."""
    import psutil

    wanted = os.fsencode(lease)
    found: dict[str, list[psutil.Process]] = {}
    for pid in all_pids():
        environment = environment_of(pid)
        launch = environment.get(LAUNCH_VARIABLE.encode())
        if launch is None or environment.get(LEASE_VARIABLE.encode()) != wanted or session_of(pid) is None:
            continue
        try:
            found.setdefault(launch.decode(), []).append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue
    return found


def is_supervisor(process: psutil.Process) -> bool:
    """Whether a process of a launch is its supervisor."""
    import psutil

    try:
        return SUPERVISOR_MODULE in process.cmdline()
    except psutil.Error:
        return False


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command name stands in parentheses and may hold anything.
    return text.rpartition(")")[2].split()
