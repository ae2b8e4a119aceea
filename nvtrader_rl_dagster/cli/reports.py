"""What was set aside, and why, for people."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from rich.table import Table

from nvtrader_rl_dagster.cli.console import console


def print_set_aside(set_aside: dict[str, int], first_problems: list[dict[str, Any]], shown: int = 5) -> None:
    """A table of reasons with counts and remedies, then the first problems with file and line."""
    from nvtrader_rl_dagster.feedback.reasons import REASONS

    if set_aside:
        table = Table(box=None, padding=(0, 2, 0, 0), title="Set aside", title_justify="left")
        table.add_column("count", justify="right")
        table.add_column("reason")
        table.add_column("meaning; remedy")
        for reason, count in sorted(set_aside.items(), key=lambda item: (-item[1], item[0])):
            known = REASONS[reason]
            table.add_row(f"{count:,}", reason, escape(f"{known.explanation}; {known.remedy}"))
        console.print(table)
    for problem in first_problems[:shown]:
        where = f"{problem['file']}:{problem['line']}" if problem.get("file") else "store"
        field = f" field {problem['field']}" if problem.get("field") else ""
        console.print(f"  {where}{field}: {problem['reason']} {problem['detail'] or ''}", markup=False)
    if len(first_problems) > shown:
        console.print("  ... all of them: the quarantine file of preference_pairs", markup=False)
