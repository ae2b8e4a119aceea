"""The Dagster instance of this home: the GPU pool, its slots, and runs without a worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nvtrader_rl_dagster.doctor.finding import Finding, error, ok, warning
from nvtrader_rl_dagster.home import Home

if TYPE_CHECKING:
    from dagster import DagsterInstance

POOL = "gpu"
_JANITOR = "gpu_janitor does it within 15 s while `nvtrader-rl up` runs"


@contextmanager
def opened(home: Home) -> Iterator[DagsterInstance | None]:
    """The instance, or None when Dagster was never started on this home: opening it would create its files."""
    folder = home.dagster_home
    if not (folder / "dagster.yaml").exists() or not _has_storage(home):
        yield None
        return
    import dagster as dg

    with dg.DagsterInstance.from_config(str(folder)) as instance:
        yield instance


def _has_storage(home: Home) -> bool:
    import yaml

    raw = yaml.safe_load((home.dagster_home / "dagster.yaml").read_text(encoding="utf-8")) or {}
    elsewhere = isinstance(raw, dict) and {"storage", "run_storage", "event_log_storage"} & raw.keys()
    return bool(elsewhere) or (home.dagster_home / "history" / "runs.db").exists()


def check_pool(instance: DagsterInstance) -> Iterator[Finding]:
    """A limit that was set by hand is stored in the database and wins over `dagster.yaml`."""
    check = f"pool {POOL}"
    remedy = f"dagster instance concurrency set {POOL} 1"
    default = instance.global_op_concurrency_default_limit
    stored = next((limit for limit in instance.event_log_storage.get_pool_limits() if limit.name == POOL), None)
    if stored is not None and not stored.from_default and stored.limit != 1:
        yield error(check, f"its limit was set to {stored.limit} by hand, which wins over dagster.yaml", remedy)
    elif (stored is None or stored.from_default) and default != 1:
        yield error(check, f"its limit is {'missing' if default is None else default}", remedy)
    else:
        yield ok(check, "one training at a time")


def check_slots(instance: DagsterInstance) -> Iterator[Finding]:
    """Slots held by runs that have ended or were deleted."""
    from nvtrader_rl_dagster.sensors.pool_slots import stale_slots

    stale = stale_slots(instance)
    for slot in stale:
        remedy = f"{_JANITOR}; by hand: Deployment, Concurrency in the UI"
        yield warning("slots", f"run {slot.run_id[:8]} ({slot.status}) holds a slot of pool {slot.pool}", remedy)
    if not stale:
        yield ok("slots", "none is held by a run that has ended")


def check_lost_runs(instance: DagsterInstance) -> Iterator[Finding]:
    """Runs that Dagster believes in progress and nobody executes."""
    from nvtrader_rl_dagster.sensors.lost_runs import lost_runs

    lost = lost_runs(instance)
    for item in lost:
        yield warning(
            "Dagster runs",
            f"run {item.run.run_id[:8]} is {item.run.status.value.lower()} and nobody executes it: {item.why}",
            f"{_JANITOR}; by hand: Terminate, force",
        )
    if not lost:
        yield ok("Dagster runs", "each run in progress has a worker")
