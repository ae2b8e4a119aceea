"""`preference_threshold`: enough new usable pairs start a training, exactly once."""

import dagster as dg

from nvtrader_rl_dagster.feedback.trigger import Cursor, Window, decide
from nvtrader_rl_dagster.jobs import feedback_to_champion
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.feedback import FeedbackResource
from nvtrader_rl_dagster.sensors.standing import standing, temporary_home, window_request
from nvtrader_rl_dagster.settings import Settings

#: So many new events are counted in one tick at most: about two seconds.
EVENTS_PER_TICK = 20_000


@dg.sensor(
    job=feedback_to_champion,
    default_status=dg.DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=15,
    description="Trains on all feedback as soon as enough usable pairs are new (PREFERENCE_THRESHOLD, default 50).",
)
def preference_threshold(
    context: dg.SensorEvaluationContext, feedback: FeedbackResource, artifacts: ArtifactStore
) -> dg.SensorResult | dg.SkipReason:
    """At most one run request a tick, for everything that is pending. Its only memory that matters is in files."""
    if reason := temporary_home(context.instance):
        return dg.SkipReason(reason)
    try:
        settings = Settings.from_env()
    except ValueError as error:
        return dg.SkipReason(str(error))
    store = feedback.existing()
    if store is None:
        return dg.SkipReason(f"0 of {settings.threshold} usable pairs; no feedback was stored yet")
    from nvtrader_rl_dagster.feedback.windows import counted  # SQLAlchemy is not cheap, and definitions import this

    try:
        now = standing(context.instance, artifacts.home, store.ledger_id)
        cursor, last = Cursor.load(context.cursor, store.ledger_id).settled(now), store.last_seq()
        cursor = counted(store, cursor, min(last, cursor.seq + EVENTS_PER_TICK))
    finally:
        store.close()
    decision = decide(cursor, now, last, settings.threshold, settings.retry_pairs)
    if not decision.fire:
        return dg.SensorResult(skip_reason=decision.reason, cursor=cursor.dump())
    window = Window(store.ledger_id, cursor.seq)
    request = window_request(window, settings.threshold)
    return dg.SensorResult(run_requests=[request], cursor=cursor.requested().dump())
