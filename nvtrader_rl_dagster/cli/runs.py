"""`nvtrader-rl runs`: which trainings there were, what they print, and how to stop one."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import typer
from rich.markup import escape
from rich.table import Table

from nvtrader_rl_dagster.cli.console import console, facts, fail, print_json
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS
from nvtrader_rl_dagster.nemo_rl.checkpoints import complete_checkpoints
from nvtrader_rl_dagster.nemo_rl.metrics import read_metrics
from nvtrader_rl_dagster.nemo_rl.public import cancel_run, get_run, list_runs, tail_log
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunRecord, RunState, RunStore

app = typer.Typer(help="Training runs: list, show, follow, cancel.", no_args_is_help=True)

AsJson = typer.Option(False, "--json", help="Print one JSON object.")
RunId = typer.Argument(help="Run id, or any part of it that no other run has.", show_default=False)

_SHOWN_LINES = 10
_PAGE_LINES = 1000
_POLL_SECONDS = 0.3
_LOOK_AFTER_SECONDS = 2.0
_INTERRUPTED = 130
_COLORS = {
    RunState.SUCCEEDED: "green",
    RunState.FAILED: "red",
    RunState.STALLED: "red",
    RunState.CANCELLED: "yellow",
    RunState.RUNNING: "cyan",
    RunState.QUEUED: "cyan",
}


@app.command("list")
def list_(
    algo: str = typer.Option(None, help=f"Only runs of this algorithm: {', '.join(ALGOS)}."),
    state: RunState = typer.Option(None, help="Only runs in this state."),
    limit: int = typer.Option(None, min=1, help="At most so many, the newest first."),
    as_json: bool = AsJson,
) -> None:
    """Training runs, newest first."""
    try:
        records = list_runs(algo, state, limit)
    except ValueError as error:
        fail(str(error), 2)
    if as_json:
        print_json({"runs": [asdict(record) for record in records]})
        return
    if not records:
        console.print(f"No training run in {Home.from_env().runs}.", markup=False)
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("run", "state", "backend", "created", "why"):
        table.add_column(column, no_wrap=column in ("run", "state"), overflow="fold")
    for record in records:
        state_cell = f"[{_COLORS[record.state]}]{record.state.value}[/]"
        why = record.failure["code"] if record.failure else ""
        table.add_row(record.run_id, state_cell, record.backend, record.created[:19].replace("T", " "), escape(why))
    console.print(table)


@app.command()
def show(run: str = RunId, as_json: bool = AsJson) -> None:
    """One run: its record, checkpoints, last metrics, failure with advice, last log lines."""
    directory = find_run(run)
    record = directory.record()
    checkpoints = [{"step": c.step, "path": str(c.path)} for c in complete_checkpoints(directory.checkpoints)]
    metrics = _last_metrics(directory)
    page = tail_log(directory.run_id, max_lines=_SHOWN_LINES)
    if as_json:
        print_json(
            {
                "run": asdict(record),
                "folder": str(directory.path),
                "config": str(directory.config),
                "log": {"path": str(directory.log), "lines": page.total, "last": [asdict(x) for x in page.lines]},
                "checkpoints": checkpoints,
                "metrics": metrics,
            }
        )
        return
    rows = [(name, str(value)) for name, value in _plain(record).items() if value not in (None, "", [])]
    rows += [("config", str(directory.config)), ("log", f"{directory.log} ({page.total:,} lines)")]
    rows += [(f"checkpoint at step {c['step']}", str(c["path"])) for c in checkpoints] or [("checkpoints", "none")]
    rows += [(name, f"{m['value']} (step {m['step']})") for name, m in metrics.items()]
    facts(record.run_id, rows)
    if record.failure:
        console.print(f"\n[bold red]{escape(record.failure['code'])}[/]: {escape(record.failure['line'])}")
        console.print(record.failure["advice"], markup=False)
    if page.lines:
        console.print("\n[bold]last lines[/]")
        _echo(page.lines)


@app.command()
def tail(
    run: str = RunId,
    follow: bool = typer.Option(False, "--follow", "-f", help="Print new lines until the run has ended."),
    lines: int = typer.Option(200, "--lines", "-n", min=0, help="Lines from the end of the log."),
) -> None:
    """The end of a run's log as a terminal would show it."""
    from nvtrader_rl_dagster.nemo_rl.reconcile import is_looked_after

    directory = find_run(run)
    run_id = directory.run_id
    try:
        page = tail_log(run_id, max_lines=lines)
        _echo(page.lines)
        while follow:
            # Asked before reading: what was written until the end is then in the pages below.
            abandoned = not is_looked_after(directory)
            ended = get_run(run_id).ended_for_good
            page = tail_log(run_id, page.next_line, _PAGE_LINES)
            _echo(page.lines)
            if page.next_line < page.total:
                continue
            if ended:
                return
            if abandoned:
                fail(f"whoever ran {run_id} was killed; nvtrader-rl runs cancel --wait {run_id} ends it for good")
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    except (KeyError, ValueError) as error:
        fail(str(error.args[0]))


@app.command()
def cancel(
    run: str = RunId,
    wait: bool = typer.Option(False, "--wait", help="Return when the run has ended; 0 only if it was cancelled."),
) -> None:
    """Stop a run and everything it started. Cancelling twice changes nothing."""
    record = cancel_run(find_run(run).run_id, by="nvtrader-rl runs cancel")
    if not record.ended_for_good and not wait:
        console.print(f"{record.run_id} will be stopped.", markup=False)
        return
    if not record.ended_for_good:
        record = _ended(record.run_id)
    console.print(f"{record.run_id} is {record.state.value}.", markup=False)
    if wait and record.state is not RunState.CANCELLED:
        raise typer.Exit(1)


def _ended(run_id: str) -> RunRecord:
    """The record of a run that has ended; waits for it."""
    from nvtrader_rl_dagster.nemo_rl.reconcile import reconcile

    home = Home.from_env()
    looked = time.monotonic()
    try:
        while not (record := get_run(run_id)).ended_for_good:
            time.sleep(_POLL_SECONDS)
            if time.monotonic() - looked > _LOOK_AFTER_SECONDS:
                # Whoever ran it may have been killed, and no daemon may be up to notice.
                looked = time.monotonic()
                reconcile(RunStore(home.runs), home.lease)
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    return record


def find_run(part: str) -> RunDirectory:
    """The run with this id, or the only one whose id has this part; leaves with an error otherwise."""
    runs = list(RunStore(Home.from_env().runs).all())
    found = [run for run in runs if part == run.run_id] or [run for run in runs if part and part in run.run_id]
    if not found:
        fail(f"no training run {part!r}; `nvtrader-rl runs list` lists them")
    if len(found) > 1:
        some = ", ".join(run.run_id for run in found[:5])
        fail(f"{part!r} is in the id of {len(found)} runs ({some}{', ...' if len(found) > 5 else ''}); give more of it")
    return found[0]


def _last_metrics(directory: RunDirectory) -> dict[str, dict[str, Any]]:
    """The newest value of each metric; its flag where it was not measured."""
    last: dict[str, dict[str, Any]] = {}
    for m in read_metrics(directory.metrics):
        name = "/".join(filter(None, (m.split, m.set, m.name)))
        last[name] = {"step": m.step, "value": m.flag if m.value is None else m.value}
    return last


def _plain(record: RunRecord) -> dict[str, Any]:
    """What people read of a record; the failure is printed below it."""
    shown = {**asdict(record), "state": record.state.value, "notes": "; ".join(record.notes)}
    return {name: value for name, value in shown.items() if name not in ("failure", "creator")}


def _echo(lines: list[Any]) -> None:
    for line in lines:
        typer.echo(line.text)
