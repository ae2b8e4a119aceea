"""`training_failed`: says on a failed run why it failed, and notes a window that failed before it had a run folder."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import dagster as dg

from nvtrader_rl_dagster.feedback.trigger import Window
from nvtrader_rl_dagster.jobs import feedback_to_champion
from nvtrader_rl_dagster.nemo_rl.run_windows import NEWEST, FailedWindow, records
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunRecord, RunStore, timestamp
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.sensors.standing import WILL_RETRY_TAG, WINDOW_TAG

#: Run tag: the code of the failure.
FAILURE_TAG = "nvtrader/failure"
_LINE_LIMIT = 500


@dataclass(frozen=True)
class Diagnosis:
    """Why a run failed. log: of its training; None when it failed before there was one."""

    code: str
    line: str
    advice: str
    log: Path | None = None


@dg.run_failure_sensor(
    monitored_jobs=[feedback_to_champion],
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=15,
    description="Attaches the diagnosis to a failed training run, so that its feedback counts for the next one.",
)
def training_failed(context: dg.RunFailureSensorContext, artifacts: ArtifactStore) -> dg.SkipReason | None:
    """A cancelled run is no failure, and a run that Dagster retries has not failed yet."""
    run, instance = context.dagster_run, context.instance
    if run.tags.get(WILL_RETRY_TAG) == "true":
        return dg.SkipReason(f"Dagster retries run {run.run_id[:8]}")
    training = _training(artifacts.runs, run)
    found = _of_training(*training) if training else None
    found = found or _of_steps(context)
    if training is None and Window.parse(run.tags.get(WINDOW_TAG)) is not None:
        FailedWindow(run.tags[WINDOW_TAG], run.run_id, found.code, found.line, found.advice, timestamp()).write(
            artifacts.home.failed_windows
        )
    # Evaluated again after a crash: the diagnosis is there already.
    if FAILURE_TAG not in run.tags:
        log = f" The whole log: {found.log}" if found.log else ""
        instance.report_engine_event(f"Failed ({found.code}): {found.line} {found.advice}{log}", run)
        instance.add_run_tags(run.run_id, {FAILURE_TAG: found.code})
    return None


def _training(runs: RunStore, run: dg.DagsterRun) -> tuple[RunDirectory, RunRecord] | None:
    """The training of a run. One that was resumed belongs to the run that resumed it last."""
    return next((found for found in islice(records(runs), NEWEST) if found[1].dagster_run_id == run.run_id), None)


def _of_training(directory: RunDirectory, record: RunRecord) -> Diagnosis | None:
    """What the record says; None for a training that did not fail: the run did, after it."""
    if record.failure is None:
        return None
    return Diagnosis(record.failure["code"], record.failure["line"], record.failure["advice"], directory.log)


def _of_steps(context: dg.RunFailureSensorContext) -> Diagnosis:
    """The first step that failed, or what Dagster says about a run of which none did."""
    advice = f"Open run {context.dagster_run.run_id} in the Dagster UI for the whole error."
    for event in context.get_step_failure_events():
        error = event.step_failure_data.error
        while error is not None and error.cause is not None:
            error = error.cause
        said = error.message.strip() if error is not None else (event.message or "")
        return Diagnosis("step_failed", f"{event.step_key}: {said}"[:_LINE_LIMIT], advice)
    said = context.failure_event.message or "the run's worker ended without a word"
    return Diagnosis("run_failed", said[:_LINE_LIMIT], advice)
