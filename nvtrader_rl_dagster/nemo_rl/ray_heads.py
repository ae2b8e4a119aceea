"""Ray clusters on this machine that are not ours. NeMo-RL would join one, out of the supervisor's reach."""

from __future__ import annotations

import os
from pathlib import Path

from nvtrader_rl_dagster.nemo_rl.processes import LEASE_VARIABLE, all_pids, environment_of, session_of

#: Ray finds a local cluster by its head, or by the address on a raylet's command line.
_DAEMONS = {"gcs_server", "raylet"}


def foreign_ray(lease: Path) -> dict[int, str]:
    """Pid and name of the Ray daemons that no launch below this lease started."""
    return {
        pid: name
        for pid in all_pids()
        if (name := _name(pid)) in _DAEMONS
        and session_of(pid) is not None
        and environment_of(pid).get(LEASE_VARIABLE.encode()) != os.fsencode(lease)
    }


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
