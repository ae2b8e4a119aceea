"""HelpSteer3 rows: `context`, `response1`, `response2` and `overall_preference` from -3 to 3."""

from __future__ import annotations

from nvtrader_rl_dagster.feedback.events import ONE_VOTE, TIE, preference
from nvtrader_rl_dagster.feedback.importers.base import ImportOptions, Outcome, Row, named, with_system
from nvtrader_rl_dagster.feedback.messages import to_messages
from nvtrader_rl_dagster.feedback.reasons import RowRejected


def read(row: Row, options: ImportOptions, source: str) -> list[Outcome]:
    """Below zero response1 is better, above zero response2, zero is a tie. The strength goes to the metadata."""
    strength = row.get("overall_preference")
    if type(strength) is not int or not -3 <= strength <= 3:
        raise RowRejected("bad_preference", "overall_preference", f"found {strength!r:.40}, expected -3 to 3")
    if row.get("context") is None:
        raise RowRejected("missing_context", "context", "missing or null")
    context = with_system(row, to_messages(row["context"], "user", "context"))
    better, worse = ("response2", "response1") if strength > 0 else ("response1", "response2")
    return [
        named(
            {"prompt": "context", "chosen": better, "rejected": worse},
            preference,
            context,
            row.get(better),
            row.get(worse),
            votes=ONE_VOTE if strength else TIE,
            source=source,
            metadata={"strength": abs(strength)},
        )
    ]
