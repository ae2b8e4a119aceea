"""The environments that NeMo-RL builds for its workers, one folder for each kind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

#: Without these no worker starts.
_NEEDED = ("ray", "torch")


class VenvState(str, Enum):
    """ready: has what a worker needs. empty: NeMo-RL takes it for finished, and it is not. unfinished: a build is
    going on, or was killed; every later start waits for it. absent: a folder without an interpreter."""

    READY = "ready"
    EMPTY = "empty"
    UNFINISHED = "unfinished"
    ABSENT = "absent"


@dataclass(frozen=True)
class WorkerVenv:
    """name: the worker's class path."""

    name: str
    state: VenvState

    @property
    def broken(self) -> bool:
        return self.state in (VenvState.EMPTY, VenvState.UNFINISHED)


def worker_venvs(folder: Path) -> list[WorkerVenv]:
    """Those below NeMo-RL's folder of environments (`NEMO_RL_VENV_DIR`), there or not."""
    if not folder.is_dir():
        return []
    return [WorkerVenv(path.name, _state(path)) for path in sorted(folder.iterdir()) if path.is_dir()]


def _state(venv: Path) -> VenvState:
    if (venv / "STARTED_ENV_BUILDER").exists():
        return VenvState.UNFINISHED
    if not (venv / "bin" / "python").exists():
        return VenvState.ABSENT
    there = all(any(venv.glob(f"lib/python3*/site-packages/{name}")) for name in _NEEDED)
    return VenvState.READY if there else VenvState.EMPTY
