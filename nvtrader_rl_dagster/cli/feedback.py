"""`nvtrader-rl feedback`: decisions in, decisions out, and what they amount to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import typer

from nvtrader_rl_dagster.cli.console import console, facts, fail, print_json
from nvtrader_rl_dagster.cli.reports import print_set_aside
from nvtrader_rl_dagster.home import Home

if TYPE_CHECKING:
    from nvtrader_rl_dagster.feedback.events import FeedbackEvent
    from nvtrader_rl_dagster.feedback.store import FeedbackStore

app = typer.Typer(help="Approve/reject feedback: import, record, count, export.", no_args_is_help=True)

AsJson = typer.Option(False, "--json", help="Print one JSON object.")
# Exit code when some rows could not be read to the end of a file: what was read is kept.
PARTIAL = 3


class Ranks(str, Enum):
    """What a row with more than two ranked answers becomes."""

    BEST_VS_WORST = "best_vs_worst"
    ALL_PAIRS = "all_pairs"


class ToolCalls(str, Enum):
    """What happens to conversations with tool calls."""

    KEEP = "keep"
    REFUSE = "refuse"


class Shape(str, Enum):
    """What `feedback export` writes."""

    EVENTS = "events"
    NEMO_RL = "nemo_rl"
    HELPSTEER3 = "helpsteer3"
    TRL = "trl"


@app.command("import")
def import_(
    paths: list[Path] = typer.Argument(
        help="Files or folders: .json .jsonl .csv .parquet, each also gzipped.", show_default=False
    ),
    format: str = typer.Option("auto", help="Format of the rows; auto recognises each row by its keys."),
    ranks: Ranks = typer.Option(Ranks.BEST_VS_WORST, help="Rows with more than two ranked answers."),
    tool_calls: ToolCalls = typer.Option(ToolCalls.KEEP, help="Conversations with tool calls."),
    max_chars: int = typer.Option(200_000, min=1, help="Longest prompt plus answer, in characters."),
    as_json: bool = AsJson,
) -> None:
    """Import feedback. The same file twice changes nothing."""
    from nvtrader_rl_dagster.feedback.importers import ImportOptions
    from nvtrader_rl_dagster.feedback.importing import import_paths

    options = ImportOptions(ranks=ranks.value, tool_calls=tool_calls.value, max_chars=max_chars)
    with problems_end_the_command(), opened_store() as store:
        report = import_paths(store, paths, format=format, options=options)
    if as_json:
        print_json(report.to_dict())
    else:
        facts(
            "Imported",
            [
                ("rows read", f"{report.rows:,}"),
                ("usable pairs", f"{report.usable_pairs:,}"),
                ("new events", f"{report.events:,} ({report.already_stored:,} were stored already)"),
            ],
        )
        print_set_aside(dict(report.set_aside), report.first_problems)
    if report.partial:
        raise typer.Exit(PARTIAL)


@app.command()
def record(
    prompt: str = typer.Option(..., help="What the model was asked; '-' reads it from standard input."),
    response: str = typer.Option(None, help="The judged answer (with --approve or --reject)."),
    approve: bool | None = typer.Option(None, "--approve/--reject", help="The decision about --response."),
    edit: str = typer.Option(None, help="The person's own version of --response."),
    chosen: str = typer.Option(None, help="The better of two answers (with --rejected)."),
    rejected: str = typer.Option(None, help="The worse of two answers."),
    reviewer: str = typer.Option(None, help="Who decided."),
    agent: str = typer.Option(None, help="Which agent wrote it, e.g. pm_narration."),
    source: str = typer.Option("PreferenceRecorded", help="Where the decision was made."),
    event_id: str = typer.Option(None, help="Idempotency key; by default the hash of the content."),
    as_json: bool = AsJson,
) -> None:
    """Record one decision."""
    from nvtrader_rl_dagster.feedback import events

    about: dict[str, Any] = {"event_id": event_id, "reviewer": reviewer, "agent": agent, "source": source}
    text = sys.stdin.read() if prompt == "-" else prompt
    with problems_end_the_command():
        if chosen is not None and rejected is not None and response is None:
            event = events.preference(text, chosen, rejected, **about)
        elif response is not None and approve is not None and chosen is None and rejected is None:
            event = events.decision(text, response, "approve" if approve else "reject", edit=edit, **about)
        else:
            fail("give either --response with --approve or --reject, or --chosen with --rejected", 2)
        _append(event, as_json)


@app.command()
def undo(target: str = typer.Argument(help="event_id to take back."), as_json: bool = AsJson) -> None:
    """Take a decision back. Nothing is deleted: the undo is an event of its own."""
    from nvtrader_rl_dagster.feedback import events

    with problems_end_the_command():
        with opened_store() as store:
            if not store.events_of([target]):
                fail(f"no event {target!r} in the store; `nvtrader-rl feedback export` lists the ids")
        _append(events.undo(target), as_json)


@app.command()
def stats(as_json: bool = AsJson) -> None:
    """How many decisions there are, and what they amount to."""
    from nvtrader_rl_dagster.feedback.pair_report import build_pairs

    with problems_end_the_command(), opened_store() as store:
        report, counts = build_pairs(store), store.counts()
    if as_json:
        files = [{"path": path, "rows": rows} for path, rows in report.by_file.items()]
        print_json({**report.to_dict(), "rows": report.decisions, "events": counts["events"], "files": files})
        return
    facts(
        "Feedback",
        [
            ("decisions", f"{report.decisions:,}"),
            ("in a pair", f"{report.used:,}"),
            ("usable pairs", f"{report.usable_pairs:,} on {report.prompts:,} prompts"),
            ("by source", ", ".join(f"{k} {v:,}" for k, v in report.by_source.items()) or "none"),
        ],
    )
    print_set_aside(report.set_aside, report.first_problems)


@app.command()
def export(
    out: Path = typer.Argument(Path("-"), help="File to write; '-' is standard output."),
    shape: Shape = typer.Option(Shape.EVENTS, help="Our own events (re-importable), or pairs in a trainer's shape."),
) -> None:
    """Write the store's events, or its usable pairs, as JSON lines."""
    with problems_end_the_command(), opened_store() as store:
        target = sys.stdout.buffer if str(out) == "-" else out.open("wb")
        try:
            written = 0
            for row in _rows(store, shape):
                target.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
                written += 1
            target.flush()
        finally:
            if target is not sys.stdout.buffer:
                target.close()
    if str(out) != "-":
        console.print(f"{written:,} rows written to {out}", markup=False)


def _rows(store: FeedbackStore, shape: Shape) -> Iterator[dict[str, Any]]:
    if shape is Shape.EVENTS:
        for item in store.iter_events():
            yield item.event.to_dict()
        return
    from nvtrader_rl_dagster.datasets.shapes import SHAPES
    from nvtrader_rl_dagster.feedback.pair_report import iter_pairs

    for pair in iter_pairs(store):
        row = SHAPES[shape.value](asdict(pair))
        if row is not None:
            yield row


def _append(event: FeedbackEvent, as_json: bool) -> None:
    with opened_store() as store:
        done = store.append_batch([event])
    (seq,), new = done.seqs, done.new == 1
    if as_json:
        print_json({"event_id": event.event_id, "seq": seq, "new": new})
    else:
        console.print(f"{'recorded' if new else 'already recorded'} {event.event_id} (seq {seq})", markup=False)


@contextmanager
def opened_store() -> Iterator[FeedbackStore]:
    """The store of this home, closed at the end."""
    # Not through the Dagster resource: importing Dagster costs a second.
    from nvtrader_rl_dagster.feedback.store import FeedbackStore

    store = FeedbackStore(Home.from_env().store_url)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def problems_end_the_command() -> Iterator[None]:
    """Errors of bad input as one line with file, field and remedy, not as a traceback."""
    from nvtrader_rl_dagster.feedback.readers import FeedbackFileError
    from nvtrader_rl_dagster.feedback.reasons import RowRejected

    try:
        yield
    except (FeedbackFileError, RowRejected, ValueError, OSError) as error:
        fail(str(error))
