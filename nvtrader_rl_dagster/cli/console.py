"""Output of the console script: people read tables, programs read one JSON object."""

from __future__ import annotations

from typing import Any, NoReturn

import orjson
import typer
from rich.console import Console
from rich.table import Table

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    """One JSON object on standard output, nothing else."""
    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode())


def fail(message: str, code: int = 1) -> NoReturn:
    """Print an error and leave."""
    errors.print(f"[bold red]error:[/] {_plain(message)}")
    raise typer.Exit(code)


def facts(title: str, rows: list[tuple[str, str]]) -> None:
    """A two-column table of names and values."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column()
    # A path is folded, never cut: people copy it.
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(f"[bold]{name}[/]", _plain(value))
    console.print(table)


def _plain(text: str) -> str:
    """Square brackets in data (intervals, paths) are no markup."""
    return text.replace("[", r"\[")
