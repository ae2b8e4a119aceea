"""Our own events, as `feedback export` writes them."""

from __future__ import annotations

from nvtrader_rl_dagster.feedback.events import FeedbackEvent
from nvtrader_rl_dagster.feedback.importers.base import ImportOptions, Outcome, Row

_MAY_BE_EMPTY = frozenset({"event_id", "source", "agent", "reviewer", "ts", "edit"})


def read(row: Row, options: ImportOptions, source: str) -> list[Outcome]:
    """One event, strictly validated. An empty optional field is an absent one (CSV has no null)."""
    given = {key: value for key, value in row.items() if not (value == "" and key in _MAY_BE_EMPTY)}
    if source:
        given["source"] = source
    return [FeedbackEvent.from_dict(given)]
