"""What Dagster and the state folder know together about requested, running and trained windows."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import dagster as dg

from nvtrader_rl_dagster.feedback.trigger import Outcome, Request, Standing, Window, newest
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.jobs import feedback_to_champion
from nvtrader_rl_dagster.nemo_rl.run_windows import failed_request, standing_of_runs
from nvtrader_rl_dagster.nemo_rl.runs import RunStore

#: Run tag: the key of the window that a run trains.
WINDOW_TAG = "nvtrader/window"
#: Run tag: the threshold that started a run.
THRESHOLD_TAG = "nvtrader/threshold"
MAX_RETRIES_TAG = "dagster/max_retries"
WILL_RETRY_TAG = "dagster/will_retry"

_TEMPORARY_HOME = ".tmp_dagster_home_"
# One query by the index of the job; whatever is in flight is among its newest runs.
_NEWEST = 25
# Dagster retries within seconds. A retry that never comes (the job was renamed, say) must not block for ever.
_RETRY_PATIENCE = 3600.0
# Dagster writes that it will retry just after it writes that a run failed.
_RETRY_TAG_DELAY = 60.0
_LOADED = time.time()


def standing(instance: dg.DagsterInstance, home: Home, ledger_id: str) -> Standing:
    """Everything that is known about the windows of one store.

    Dagster is asked first: a run that has ended has written its record before.
    """
    dagster, busy = _job_runs(instance, ledger_id)
    files = standing_of_runs(RunStore(home.runs), ledger_id)
    # Of equal outcomes the first one's words are used, and files say why a training failed.
    request = newest(files.request, failed_request(home.failed_windows, ledger_id), dagster)
    return replace(files, request=request, busy=busy or files.busy)


def window_request(window: Window, threshold: int, prefix: str = "") -> dg.RunRequest:
    """The run that trains a window. Whoever requests it, the window's tag and key are the same."""
    return dg.RunRequest(
        run_key=prefix + window.key,
        run_config={"ops": {"preference_pairs": {"config": {"through_seq": window.through_seq}}}},
        tags={WINDOW_TAG: window.key, THRESHOLD_TAG: str(threshold), MAX_RETRIES_TAG: "1"},
    )


def temporary_home(instance: dg.DagsterInstance) -> str | None:
    """Why nothing may start by itself on this instance: it forgets what it started. None for a persistent one."""
    if instance.is_ephemeral:
        where = "Dagster keeps its history in memory"
    elif any(part.startswith(_TEMPORARY_HOME) for part in Path(instance.root_directory).parts):
        where = f"DAGSTER_HOME is the temporary folder {instance.root_directory}"
    else:
        return None
    return f"{where}, so the same feedback would be trained again after each start; start with `nvtrader-rl up`"


def _job_runs(instance: dg.DagsterInstance, ledger_id: str) -> tuple[Request | None, str]:
    """The newest window of the job's runs with its outcome, and the run in flight in words."""
    records = instance.get_run_records(dg.RunsFilter(job_name=feedback_to_champion.name), limit=_NEWEST)
    requests: dict[int, Request] = {}
    busy = ""
    for record in records:
        run = record.dagster_run
        outcome = _outcome(instance, record)
        if outcome is Outcome.OPEN:
            busy = f"{'a retry of ' if run.is_finished else ''}run {run.run_id[:8]}"
        window = Window.parse(run.tags.get(WINDOW_TAG))
        if window is not None and window.ledger_id == ledger_id:
            request = Request(window.through_seq, outcome, f"run {run.run_id[:8]}")
            requests.setdefault(window.through_seq, request)  # the newest run of a window counts
    return (newest(*requests.values()) if requests else None), busy


def _outcome(instance: dg.DagsterInstance, record: dg.RunRecord) -> Outcome:
    run = record.dagster_run
    if not run.is_finished:
        return Outcome.OPEN
    if run.status is dg.DagsterRunStatus.CANCELED:
        return Outcome.CANCELLED
    if run.status is dg.DagsterRunStatus.SUCCESS:
        return Outcome.SPENT
    waited = time.time() - max(record.end_time or 0.0, _LOADED)
    if run.is_complete_and_waiting_to_retry:
        return Outcome.OPEN if waited < _RETRY_PATIENCE else Outcome.FAILED
    unknown = instance.run_retries_enabled and WILL_RETRY_TAG not in run.tags
    return Outcome.OPEN if unknown and waited < _RETRY_TAG_DELAY else Outcome.FAILED
