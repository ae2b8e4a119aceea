"""Feedback files that were dropped into the inbox, imported."""

from collections import Counter
from typing import Any

import dagster as dg
from pydantic import Field

from nvtrader_rl_dagster.assets.common import OWNERS, counts_table
from nvtrader_rl_dagster.feedback.inbox import (
    ERROR_SUFFIX,
    FAILED,
    SETTLE_SECONDS,
    FileOutcome,
    Inbox,
    import_file,
    read_inbox,
)
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.feedback import FeedbackResource

_TABLE_ROWS = 50


class InboxConfig(dg.Config):
    """When a dropped file counts as complete."""

    settle_seconds: float = Field(
        default=SETTLE_SECONDS,
        ge=0,
        description="A file that was changed within these seconds is still being written and waits.",
    )


@dg.asset(group_name="preferences", kinds={"jsonl"}, owners=OWNERS, code_version="1")
def imported_feedback(
    context: dg.AssetExecutionContext, config: InboxConfig, feedback: FeedbackResource, artifacts: ArtifactStore
) -> dg.MaterializeResult:
    """Files from the inbox folder, each imported once and moved to `imported/`, or to `failed/` with what to repair.

    An empty or missing inbox is nothing to do. Rows that cannot be used are set aside in the store, with a reason.
    """
    folder, store = artifacts.home.inbox, feedback.open()
    try:
        inbox = read_inbox(folder, config.settle_seconds)
        outcomes = [outcome for file in inbox.ready if (outcome := import_file(store, file))]
    except OSError as error:
        raise dg.Failure(
            f"The inbox cannot be emptied: {error}. The user that runs Dagster must be able to read and write {folder} "
            "and the folders in it; what was imported is stored and is not imported twice.",
            allow_retries=False,
        ) from error
    for outcome in outcomes:
        if outcome.error:
            context.log.warning("%s could not be read and lies in %s now", outcome.name, outcome.moved_to.parent)
    return dg.MaterializeResult(
        # The store it left behind: the same store again leaves the pairs fresh.
        data_version=dg.DataVersion(f"{store.ledger_id}:{store.last_seq()}"),
        metadata={
            **_numbers(outcomes),
            "set_aside_by_reason": counts_table(dict(_set_aside(outcomes)), "reason"),
            "file_table": _table(outcomes, inbox),
            "first_problems": dg.MetadataValue.json(
                [problem for o in outcomes if o.report for problem in o.report.first_problems][:_TABLE_ROWS]
            ),
            "folder": dg.MetadataValue.path(str(folder)),
            "failed_folder": dg.MetadataValue.path(str(folder / FAILED)),
        },
    )


def _numbers(outcomes: list[FileOutcome]) -> dict[str, int]:
    """Sums over files. A pair that rests on decisions of two files counts with both."""
    reports = [o.report for o in outcomes if o.report]
    return {
        "files": sum(not o.error for o in outcomes),
        "failed_files": sum(bool(o.error) for o in outcomes),
        "decisions": sum(r.rows for r in reports),
        "new_events": sum(r.events for r in reports),
        "already_stored": sum(r.already_stored for r in reports),
        "usable_pairs": sum(r.usable_pairs for r in reports),
        "set_aside": _set_aside(outcomes).total() if outcomes else 0,
    }


def _set_aside(outcomes: list[FileOutcome]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for outcome in outcomes:
        if outcome.report:
            counted.update(outcome.report.set_aside)
    return counted


def _table(outcomes: list[FileOutcome], inbox: Inbox) -> dg.TableMetadataValue:
    """One row per file, the failed ones first, at most 50."""
    rows: list[dict[str, Any]] = [
        {
            "file": o.name,
            "became": "failed" if o.error else "imported",
            "decisions": o.report.rows if o.report else 0,
            "new_events": o.report.events if o.report else 0,
            "usable_pairs": o.report.usable_pairs if o.report else 0,
            "set_aside": sum(o.report.set_aside.values()) if o.report else 0,
            "note": _note(o),
        }
        for o in sorted(outcomes, key=lambda o: not o.error)
    ]
    nothing = dict.fromkeys(("decisions", "new_events", "usable_pairs", "set_aside"), 0)
    rows += [{"file": name, "became": "waits", **nothing, "note": why} for name, why in inbox.waiting]
    columns = [
        dg.TableColumn(name, "int" if name in nothing else "string") for name in ("file", "became", *nothing, "note")
    ]
    schema = dg.TableSchema(columns)
    return dg.MetadataValue.table([dg.TableRecord(row) for row in rows[:_TABLE_ROWS]], schema=schema)


def _note(outcome: FileOutcome) -> str:
    if outcome.error:
        return f"see {outcome.moved_to.name}{ERROR_SUFFIX} beside it"
    if outcome.report and outcome.report.partial:
        return "not read to its end; what came before is kept"
    return "" if outcome.moved_to.name == outcome.name else f"is {outcome.moved_to.name} now"
