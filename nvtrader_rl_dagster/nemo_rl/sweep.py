"""Ends what a killed supervisor left running. Whoever lives below a live supervisor is left alone."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nvtrader_rl_dagster.nemo_rl import ray_folder
from nvtrader_rl_dagster.nemo_rl.launch_files import read_members
from nvtrader_rl_dagster.nemo_rl.lease import last_holder
from nvtrader_rl_dagster.nemo_rl.processes import all_pids, boot_id, is_supervisor, launches, session_of

if TYPE_CHECKING:
    import psutil

_KILL_SECONDS = 10.0


def sweep(lease: Path, holder: dict[str, Any] | None = None) -> list[str]:
    """Kill the processes of every launch below this lease whose supervisor is dead; one sentence for each deed.

    holder: what the lease says about its last holder, if the caller has taken the lease since. SIGKILL at once: whoever
    could have saved something was told to by a supervisor, and that is gone.
    """
    import psutil

    holder = last_holder(lease) if holder is None else holder
    done = set()
    deadline = time.monotonic() + _KILL_SECONDS
    while True:
        living = launches(lease)
        orphans = [p for processes in living.values() if not any(map(is_supervisor, processes)) for p in processes]
        orphans += _left_by(holder)
        for process in orphans:
            try:
                name = process.name()
                process.kill()
            except psutil.Error:
                continue
            done.add(f"killed {name} (pid {process.pid}), left over from a launch whose supervisor died")
        if not orphans or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    removed = ray_folder.remove_left_over(lease, set(living))
    return sorted(done) + [f"removed {folder}, left over from a dead launch" for folder in removed]


def _left_by(holder: dict[str, Any]) -> list[psutil.Process]:
    """Processes of the lease's last holder that hide their environment: members of its session, and whoever it noted.

    A session's number is not given to a new process while the session has members; when its leader's pid is in use
    again, the session is not ours any more.
    """
    import psutil

    session = holder.get("pid")
    if session is None or holder.get("boot") != boot_id() or session_of(session) is not None:
        return []
    pids = {pid for pid in all_pids() if session_of(pid) == session}
    pids |= {noted.pid for noted in read_members(Path(holder["directory"]), holder["launch_id"]) if noted.alive()}
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found
