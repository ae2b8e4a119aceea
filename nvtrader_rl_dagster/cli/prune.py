"""`nvtrader-rl prune`: removes what is old and no longer needed, never what the champion or the trigger needs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from nvtrader_rl_dagster.cli.console import console, fail, print_json
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.pruning import execute, plan, size_of

if TYPE_CHECKING:
    from dagster import DagsterInstance, RunRecord

_DAY = 86_400.0


def prune(
    keep: int = typer.Option(10, min=1, help="Ended training runs that stay, counted from the newest."),
    older_than: float = typer.Option(
        None,
        min=0,
        metavar="DAYS",
        help="Only what ended longer ago. With it, old run records of Dagster go as well.",
        show_default=False,
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Only say what would be removed."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Free disk space: old training runs with their scores, data sets that no kept run uses, old Dagster runs.

    Always kept: every champion there was, the newest run and the newest succeeded one, runs that go on, and what
    any of them was made from.
    """
    home = Home.from_env()
    try:
        removals = plan(home, keep, older_than or 0.0)
        freed = sum(removal.bytes for removal in removals) if dry_run else execute(removals)
    except (ValueError, OSError) as error:
        fail(str(error))
    dagster_runs, dagster_bytes = _prune_dagster(home, older_than, dry_run) if older_than is not None else (0, 0)
    freed += dagster_bytes
    if as_json:
        removed = [{**asdict(removal), "path": str(removal.path)} for removal in removals]
        result = {"removed": removed, "dagster_runs": dagster_runs, "freed_bytes": freed, "dry_run": dry_run}
        print_json(result)
        return
    for removal in removals:
        console.print(f"{_size(removal.bytes):>10}  {removal.path}  ({removal.why})", markup=False, soft_wrap=True)
    would = "would be " if dry_run else ""
    console.print(
        f"{len(removals)} folders and {dagster_runs} Dagster runs {would}removed, {_size(freed)} {would}freed."
    )


def _prune_dagster(home: Home, older_than: float, dry_run: bool) -> tuple[int, int]:
    """Delete old Dagster runs with their events and compute logs. Returns their number and bytes."""
    if not home.dagster_home.is_dir():
        return 0, 0
    import dagster as dg

    runs = freed = 0
    with dg.DagsterInstance.from_config(str(home.dagster_home)) as instance:
        for record in _old_runs(instance, time.time() - older_than * _DAY):
            run_id = record.dagster_run.run_id
            # Dagster empties the run's event file but leaves it.
            files = list((home.dagster_home / "history" / "runs").glob(f"{run_id}.db*"))
            freed += sum(file.stat().st_size for file in files) + size_of(home.dagster_home / "storage" / run_id)
            runs += 1
            if dry_run:
                continue
            instance.compute_log_manager.delete_logs(prefix=[run_id])
            instance.delete_run(run_id)
            for file in files:
                file.unlink(missing_ok=True)
    return runs, freed


def _old_runs(instance: DagsterInstance, before: float) -> Iterator[RunRecord]:
    """Ended Dagster runs that nobody asks for any more.

    Kept: what an asset's page shows as its latest event, the newest run of each job and the newest that the trigger
    requested for each feedback store, and runs that a run in progress is a retry of.
    """
    import dagster as dg

    from nvtrader_rl_dagster.sensors.standing import WINDOW_TAG

    needed: set[str | None] = set()
    for asset in instance.get_asset_records():
        entry = asset.asset_entry
        events = (entry.last_materialization_record, entry.last_observation_record)
        needed |= {entry.last_run_id, *(event.run_id for event in events if event)}
    records = instance.get_run_records()
    ended = {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED}
    newest: dict[tuple[str, str], str] = {}
    for record in records:  # newest first
        run = record.dagster_run
        newest.setdefault((run.job_name, ""), run.run_id)
        newest.setdefault((run.job_name, run.tags.get(WINDOW_TAG, "").rpartition(":")[0]), run.run_id)
        if run.status not in ended:
            needed |= {run.run_id, run.parent_run_id, run.root_run_id}
    needed.update(newest.values())
    for record in records:
        finished = record.end_time or record.create_timestamp.timestamp()
        if record.dagster_run.run_id not in needed and finished < before:
            yield record


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
