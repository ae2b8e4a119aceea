"""What starts by the clock: the nightly loop and the weekly look at the champion. Their times are in `settings.py`."""

import os
import time

import dagster as dg
from dagster._core.definitions.run_request import InstigatorType
from dagster._utils.schedules import is_valid_cron_schedule

from nvtrader_rl_dagster.feedback.trigger import Cursor, Window, decide
from nvtrader_rl_dagster.jobs import champion_evaluation, feedback_to_champion
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.feedback import FeedbackResource
from nvtrader_rl_dagster.sensors.standing import standing, temporary_home, window_request
from nvtrader_rl_dagster.sensors.threshold import EVENTS_PER_TICK, preference_threshold
from nvtrader_rl_dagster.settings import NIGHTLY_VARIABLE, WEEKLY_VARIABLE, Settings

#: Dagster gives a tick 60 s. What is not counted by then belongs to the next window.
COUNTING_SECONDS = 30.0
# Several times the sensor's interval, also when a busy machine evaluates it late.
_SENSOR_PATIENCE = 300.0


def _cron(variable: str, default: str) -> str:
    """The cron line of this environment variable. Raises `ValueError` that names it."""
    line = os.environ.get(variable) or default
    if not is_valid_cron_schedule(line):
        raise ValueError(f"{variable}={line!r} must be a cron line of five fields, such as {default!r}")
    return line


@dg.schedule(
    job=feedback_to_champion,
    cron_schedule=_cron(NIGHTLY_VARIABLE, Settings.nightly),
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description=(
        "Trains at night on what did not reach the threshold during the day (NVTRADER_RL_NIGHTLY, default 02:00 UTC; "
        "NVTRADER_RL_NIGHTLY_PAIRS, default 10)."
    ),
)
def nightly_loop(
    context: dg.ScheduleEvaluationContext, feedback: FeedbackResource, artifacts: ArtifactStore
) -> dg.RunRequest | dg.SkipReason:
    """The decision of `preference_threshold` with a lower threshold, on windows of the same kind.

    A window that the sensor requested is not requested again, nor the other way round. The schedule keeps no cursor:
    it counts from the newest trained window.
    """
    if reason := temporary_home(context.instance):
        return dg.SkipReason(reason)
    try:
        settings = Settings.from_env()
    except ValueError as error:
        return dg.SkipReason(str(error))
    store = feedback.existing()
    if store is None:
        return dg.SkipReason(f"0 of {settings.nightly_pairs} usable pairs; no feedback was stored yet")
    from nvtrader_rl_dagster.feedback.windows import counted  # SQLAlchemy is not cheap, and definitions import this

    try:
        now = standing(context.instance, artifacts.home, store.ledger_id)
        cursor, last = Cursor(store.ledger_id).settled(now), store.last_seq()
        deadline = time.monotonic() + COUNTING_SECONDS
        while cursor.seq < last:
            cursor = counted(store, cursor, min(last, cursor.seq + EVENTS_PER_TICK))
            if time.monotonic() > deadline:
                break
    finally:
        store.close()
    # An older copy of the store ends before the base; `decide` then says so.
    decision = decide(cursor, now, min(last, cursor.seq), settings.nightly_pairs, settings.retry_pairs)
    if not decision.fire:
        return dg.SkipReason(decision.reason)
    if cursor.pending >= settings.threshold and _sensor_at_work(context.instance):
        # Both could request the same window at the same moment, and each would see nothing in flight.
        return dg.SkipReason(f"{decision.reason}; {preference_threshold.name} starts this one")
    window = Window(store.ledger_id, cursor.seq)
    return window_request(window, settings.nightly_pairs, prefix="nightly:")


weekly_champion = dg.ScheduleDefinition(
    name="weekly_champion",
    job=champion_evaluation,
    cron_schedule=_cron(WEEKLY_VARIABLE, Settings.weekly),
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Scores the champion on the held-out pairs of today (NVTRADER_RL_WEEKLY, default Sunday 06:00 UTC).",
)


def _sensor_at_work(instance: dg.DagsterInstance) -> bool:
    """Whether the threshold sensor is on and was evaluated lately without an error: then it starts what is due."""
    # Loaded in every code server, but not by `import dagster`.
    from dagster._core.scheduler.instigation import InstigatorStatus, TickStatus

    for state in instance.all_instigator_state(instigator_type=InstigatorType.SENSOR):
        if state.instigator_name == preference_threshold.name and state.status is not InstigatorStatus.STOPPED:
            ticks = instance.get_ticks(
                state.instigator_origin_id, state.selector_id, after=time.time() - _SENSOR_PATIENCE, limit=1
            )
            if ticks and ticks[0].status is not TickStatus.FAILURE:
                return True
    return False
