"""`nvtrader-rl champion`: who serves, since when, and the way back."""

from __future__ import annotations

from dataclasses import asdict

import typer

from nvtrader_rl_dagster.cli.console import console, facts, fail, print_json
from nvtrader_rl_dagster.evaluation.champion import Champion, ChampionStore
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.runs import timestamp

app = typer.Typer(help="The promoted checkpoint and its history.", no_args_is_help=True)

AsJson = typer.Option(False, "--json", help="Print one JSON object.")


@app.command()
def show(as_json: bool = AsJson) -> None:
    """The champion, or the base model while there is none."""
    _print(_store().current(), as_json)


@app.command()
def history(as_json: bool = AsJson) -> None:
    """Promotions and rollbacks, oldest first."""
    changes = _store().history()
    if as_json:
        print_json({"history": [asdict(change) for change in changes]})
        return
    if not changes:
        console.print("No promotion yet; the base model serves.")
    for change in changes:
        console.print(f"{change.ts}  {change.what:<11}  {change.checkpoint_id or 'base model'}", markup=False)
        console.print(f"    replaced {change.replaced or 'base model'}: {change.reason}", markup=False)


@app.command()
def rollback(reason: str = typer.Option("by hand", help="Why; kept in the history."), as_json: bool = AsJson) -> None:
    """Go back to the champion before this one. It is not promoted again by itself."""
    try:
        now = _store().rollback(timestamp(), reason)
    except LookupError as error:
        fail(str(error))
    _print(now, as_json)


def _store() -> ChampionStore:
    return ChampionStore(Home.from_env().champion)


def _print(champion: Champion | None, as_json: bool) -> None:
    if as_json:
        print_json({"champion": asdict(champion) if champion else None})
    elif champion is None:
        console.print("No champion; the base model serves.")
    else:
        facts("Champion", [(name, str(value)) for name, value in asdict(champion).items() if value is not None])
