"""Ray clusters on this machine that are not ours. NeMo-RL would join one, out of the supervisor's reach."""

from __future__ import annotations

import os
from pathlib import Path

from nvtrader_rl_dagster.nemo_rl.processes import LEASE_VARIABLE, all_pids, environment_of, session_of


def foreign_ray_heads(lease: Path) -> list[int]:
    """Pids of the `gcs_server` processes that no launch below this lease started."""
    return [
        pid
        for pid in all_pids()
        if _executable(pid) == "gcs_server"
        and session_of(pid) is not None
        and environment_of(pid).get(LEASE_VARIABLE.encode()) != os.fsencode(lease)
    ]


def _executable(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return Path(os.fsdecode(command.split(b"\0", 1)[0])).name
