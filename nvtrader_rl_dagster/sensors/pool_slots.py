"""Slots of concurrency pools that are held by runs which have ended, or were deleted."""

from __future__ import annotations

from dataclasses import dataclass

import dagster as dg


@dataclass(frozen=True)
class StaleSlot:
    """A slot, or a place in the queue for one, of a run that will not give it back. status: of the run."""

    pool: str
    run_id: str
    status: str


def stale_slots(instance: dg.DagsterInstance) -> list[StaleSlot]:
    """Slots and places that nobody will give back.

    Dagster frees those of ended runs late, and never those that a worker claimed after its run was deleted.
    """
    storage = instance.event_log_storage
    found = []
    for pool, info in sorted(storage.get_concurrency_infos(sorted(storage.get_concurrency_keys())).items()):
        for run_id in sorted(info.active_run_ids | info.assigned_run_ids | info.pending_run_ids):
            run = instance.get_run_by_id(run_id)
            if run is None or run.is_finished:
                found.append(StaleSlot(pool, run_id, run.status.value.lower() if run else "deleted"))
    return found


def free_stale_slots(instance: dg.DagsterInstance) -> list[str]:
    """Free them; one sentence for each."""
    done = []
    for slot in stale_slots(instance):
        instance.event_log_storage.free_concurrency_slots_for_run(slot.run_id)
        done.append(f"freed the slot of pool {slot.pool} held by run {slot.run_id[:8]} ({slot.status})")
    return done
