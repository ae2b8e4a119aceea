"""The GPU lease, and what killed trainings left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nvtrader_rl_dagster.doctor.finding import Finding, ok, warning
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.lease import lease_holder
from nvtrader_rl_dagster.nemo_rl.processes import is_supervisor, launches
from nvtrader_rl_dagster.nemo_rl.reconcile import is_looked_after
from nvtrader_rl_dagster.nemo_rl.runs import RunStore

_JANITOR = "gpu_janitor ends it within 15 s while `nvtrader-rl up` runs"


def check_lease(home: Home) -> Iterator[Finding]:
    """Who has the GPU."""
    holder = lease_holder(home.lease)
    if holder is None:
        yield ok("lease", "the GPU is free")
        return
    pids = lock_holders(home.lease)
    who = f"pid {', '.join(map(str, pids))}" if pids else "an unknown process"
    if holder.get("pid") in pids and holder.get("run_id"):
        yield ok("lease", f"run {holder['run_id']} has the GPU ({who})")
    elif holder.get("pid") in pids and holder.get("directory"):
        yield ok("lease", f"{holder['directory']} has the GPU ({who})")
    else:
        remedy = f"find out what {who} is; end it if it is nothing you started, and trainings can start"
        yield warning("lease", f"{who} locks {home.lease} and does not say for what", remedy)


def lock_holders(path: Path) -> list[int]:
    """Pids that hold a file lock on it, by `/proc/locks`; empty when the file is not there."""
    try:
        inode = path.stat().st_ino
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    fields = [line.split() for line in lines if "->" not in line]
    return sorted(int(f[4]) for f in fields if f[1] == "FLOCK" and int(f[5].rpartition(":")[2]) == inode)


def check_leftovers(home: Home) -> Iterator[Finding]:
    """Trainer processes without a supervisor, and runs that nobody looks after."""
    left = [
        process
        for processes in launches(home.lease).values()
        if not any(map(is_supervisor, processes))
        for process in processes
    ]
    for process in left:
        yield warning("leftovers", f"pid {process.pid} is left over from a launch whose supervisor died", _JANITOR)
    lost = [run for run in RunStore(home.runs).all() if not run.record().ended_for_good and not is_looked_after(run)]
    for run in lost:
        state = run.record().state.value
        yield warning("leftovers", f"run {run.run_id} is {state}, and whoever ran it is gone", _JANITOR)
    if not left and not lost:
        yield ok("leftovers", "nothing is left of earlier trainings")
