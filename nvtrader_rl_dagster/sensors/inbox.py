"""Dropped feedback files start their import by themselves."""

import time

import dagster as dg

from nvtrader_rl_dagster.feedback.inbox import Inbox, read_inbox
from nvtrader_rl_dagster.jobs import import_feedback
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore

#: Tag of a run: the fingerprint of the files that it was started for.
INBOX_TAG = "nvtrader/inbox"
#: Files that a run left behind (it failed, or was cancelled) are tried again after this time, then twice as late each
#: time, up to 64 times this.
RETRY_SECONDS = 300
_MOST_DOUBLINGS = 6
_IN_FLIGHT = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_NAMES_SHOWN = 5


@dg.sensor(
    job=import_feedback,
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=15,
    description="Imports feedback files that are complete in the inbox folder, and says which wait and why.",
)
def feedback_inbox(context: dg.SensorEvaluationContext, artifacts: ArtifactStore) -> dg.RunRequest | dg.SkipReason:
    """One run for all ready files; the import itself is the run's, because a tick has 60 s."""
    folder = artifacts.home.inbox
    inbox = read_inbox(folder)
    if not inbox.ready:
        return dg.SkipReason(_waiting(inbox) if folder.is_dir() else f"there is no folder {folder}; nothing to import")
    runs = context.instance.get_run_records(dg.RunsFilter(job_name=import_feedback.name, statuses=_IN_FLIGHT), limit=1)
    if runs:
        return dg.SkipReason(f"{_waiting(inbox)}; run {runs[0].dagster_run.run_id[:8]} is importing")
    tag = {INBOX_TAG: inbox.fingerprint}
    tried = context.instance.get_run_records(dg.RunsFilter(job_name=import_feedback.name, tags=tag))
    if tried:
        run, pause = tried[0].dagster_run, RETRY_SECONDS << min(len(tried) - 1, _MOST_DOUBLINGS)
        wait = (tried[0].end_time or 0) + pause - time.time()
        if wait > 0:
            return dg.SkipReason(
                f"{_waiting(inbox)}; run {run.run_id[:8]} ({run.status.value}) left them here; again in {wait:.0f} s"
            )
    # A key that was used is never run again, so the next try has one of its own.
    key = inbox.fingerprint if not tried else f"{inbox.fingerprint}-{len(tried) + 1}"
    return dg.RunRequest(run_key=key, tags=tag)


def _waiting(inbox: Inbox) -> str:
    """`3 files, 1 still being written: b.jsonl (open in another program)`."""
    if not inbox.ready and not inbox.waiting:
        return "the inbox is empty"
    names = [f"{name} ({why})" for name, why in inbox.waiting]
    written = sum(why.startswith("still being written") for _, why in inbox.waiting)
    total = len(inbox.ready) + len(inbox.waiting)
    text = f"{total} file{'' if total == 1 else 's'}, {written} still being written"
    more = len(names) - _NAMES_SHOWN
    shown = ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"{text}: {shown}" if names else text
