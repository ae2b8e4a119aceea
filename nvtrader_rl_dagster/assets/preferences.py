"""Preference pairs: what the decisions amount to, with every decision accounted for."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import orjson

from nvtrader_rl_dagster import files
from nvtrader_rl_dagster.assets.common import OWNERS, counts_table, published
from nvtrader_rl_dagster.datasets.shapes import kto_row
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.feedback import FeedbackResource

if TYPE_CHECKING:
    from nvtrader_rl_dagster.feedback.store import FeedbackStore

PAIRS_FILE, UNPAIRED_FILE = "pairs.jsonl", "unpaired.jsonl"
QUARANTINE_FILE, REPORT_FILE = "quarantine.jsonl", "report.json"


@dg.asset(group_name="preferences", kinds={"jsonl"}, owners=OWNERS, code_version="1")
def preference_pairs(feedback: FeedbackResource, artifacts: ArtifactStore) -> dg.MaterializeResult:
    """Pairs from all feedback so far: decisions = used + set aside, each with its reason."""
    store = feedback.open()
    version = files.publish(
        artifacts.home.pairs,
        lambda folder: _write(store, folder),
        # The report may change (one more tie, say) while the pairs stay what they were.
        content=[PAIRS_FILE, UNPAIRED_FILE],
    )
    report = version.manifest["report"]
    bias = report["length_bias"]
    return published(
        version,
        {
            "dagster/row_count": report["usable_pairs"],
            "decisions": report["decisions"],
            "usable_pairs": report["usable_pairs"],
            "prompts": report["prompts"],
            "set_aside": sum(report["set_aside"].values()),
            "set_aside_by_reason": counts_table(report["set_aside"], "reason"),
            "pairs_by_source": counts_table(report["by_source"], "source"),
            "through_seq": version.manifest["through_seq"],
            # How far 'the longer answer wins' alone would get: a model must beat that to have learned more.
            **{f"length/{name}": value for name, value in bias.items() if value is not None},
            "first_problems": dg.MetadataValue.json(report["first_problems"]),
            "quarantine": dg.MetadataValue.path(str(version.path / QUARANTINE_FILE)),
        },
    )


def _write(store: FeedbackStore, folder: Path) -> dict[str, Any]:
    """Write pairs, unpaired decisions, quarantine and report in one pass over the store."""
    from nvtrader_rl_dagster.feedback.pair_report import build_pairs, set_aside_events

    unpaired = 0
    with (
        (folder / PAIRS_FILE).open("wb") as pairs,
        (folder / UNPAIRED_FILE).open("wb") as singles,
        (folder / QUARANTINE_FILE).open("wb") as quarantine,
    ):
        for row in store.iter_set_aside():
            quarantine.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))

        def write(group: Any, judgement: Any) -> None:
            nonlocal unpaired
            for pair in judgement.pairs:
                pairs.write(orjson.dumps(asdict(pair), option=orjson.OPT_APPEND_NEWLINE))
            for item in judgement.unpaired:
                event = item.event
                row = kto_row(event.event_id, event.prompt, event.response, event.verdict == "approve")
                singles.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
                unpaired += 1
            for problem in set_aside_events(group, judgement):
                quarantine.write(orjson.dumps(problem, option=orjson.OPT_APPEND_NEWLINE))

        report = build_pairs(store, on_prompt=write).to_dict()
    files.write_json(folder / REPORT_FILE, report)
    return {"report": report, "through_seq": report["through_seq"], "unpaired": unpaired}
