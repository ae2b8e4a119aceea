"""The files behind `preference_pairs`: pairs, single decisions, and everything that was set aside."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from nvtrader_rl_dagster.datasets.shapes import kto_row

if TYPE_CHECKING:
    # SQLAlchemy is not cheap, and the code location imports this module.
    from nvtrader_rl_dagster.feedback.events import StoredEvent
    from nvtrader_rl_dagster.feedback.pairs import Judgement
    from nvtrader_rl_dagster.feedback.store import FeedbackStore

PAIRS_FILE, UNPAIRED_FILE, QUARANTINE_FILE = "pairs.jsonl", "unpaired.jsonl", "quarantine.jsonl"


def write_pair_files(store: FeedbackStore, folder: Path, through_seq: int | None = None) -> dict[str, Any]:
    """Judge the feedback up to event `through_seq` (default: all) in one pass and write the three files.

    Memory is bounded by one prompt's events. Returns the manifest: the pair builder's report, the last event it
    saw, and the rows for KTO.
    """
    from nvtrader_rl_dagster.feedback.pair_report import build_pairs, set_aside_events

    # A window never reaches beyond the store: another store may have taken the place of the one it was counted in.
    last = store.last_seq()
    through = last if through_seq is None else min(through_seq, last)
    unpaired = 0
    with (
        (folder / PAIRS_FILE).open("wb") as pairs,
        (folder / UNPAIRED_FILE).open("wb") as singles,
        (folder / QUARANTINE_FILE).open("wb") as quarantine,
    ):
        for row in store.iter_set_aside():
            quarantine.write(_line(row))

        def write(group: list[StoredEvent], judgement: Judgement) -> None:
            nonlocal unpaired
            for pair in judgement.pairs:
                pairs.write(_line(asdict(pair)))
            for item in judgement.unpaired:
                event = item.event
                assert event.response is not None, "only decisions are unpaired, and each judges a response"
                singles.write(_line(kto_row(event.event_id, event.prompt, event.response, event.verdict == "approve")))
                unpaired += 1
            for problem in set_aside_events(group, judgement):
                quarantine.write(_line(problem))

        report = build_pairs(store, through, on_prompt=write).to_dict()
    return {
        "report": report,
        "ledger_id": store.ledger_id,
        "through_seq": report["through_seq"],
        "unpaired": unpaired,
    }


def _line(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
