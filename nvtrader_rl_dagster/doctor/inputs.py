"""Settings in the environment, and the feedback that trainings are made of."""

from __future__ import annotations

from collections.abc import Iterator

from nvtrader_rl_dagster.doctor.finding import Finding, error, ok, warning
from nvtrader_rl_dagster.home import STORE_VARIABLE, Home
from nvtrader_rl_dagster.settings import Settings, device_settings


def check_settings(home: Home) -> Iterator[Finding]:
    """Environment variables that say when trainings start and what runs them."""
    try:
        settings = Settings.from_env()
        device = device_settings()
        # Loads the schedules, whose times come from the environment as well.
        from nvtrader_rl_dagster.definitions import defs  # noqa: F401
    except ValueError as problem:
        yield error("settings", str(problem), "correct the variable and restart")
        return
    said = f"a training starts at {settings.threshold} new usable pairs"
    yield ok("settings", ", ".join([said, *(f"{name} {value}" for name, value in device.items())]))


def check_feedback(home: Home) -> Iterator[Finding]:
    """The store answers, and holds something."""
    from sqlalchemy.exc import SQLAlchemyError

    from nvtrader_rl_dagster.feedback.store import FeedbackStore

    start = "import feedback: nvtrader-rl feedback import FILE"
    try:
        store = FeedbackStore.existing(home.store_url)
        counts = store.counts() if store else None
    except (SQLAlchemyError, ValueError, OSError) as problem:
        said = str(problem).splitlines()[0]
        yield error("feedback", f"the store does not answer: {said}", f"is {STORE_VARIABLE} right, and its server up?")
        return
    if store is None or counts is None:
        yield warning("feedback", "there is no feedback yet", start)
        return
    store.close()
    if not counts["events"]:
        yield warning("feedback", "the store is empty", start)
    else:
        yield ok("feedback", f"{counts['events']:,} events, {counts['set_aside_rows']:,} rows set aside")
