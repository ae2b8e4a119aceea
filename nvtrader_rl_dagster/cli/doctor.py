"""`nvtrader-rl doctor`: what would keep the loop from running, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.markup import escape
from rich.table import Table

from nvtrader_rl_dagster.cli.console import console, print_json
from nvtrader_rl_dagster.doctor.finding import Finding, Status
from nvtrader_rl_dagster.home import Home

_SHOWN = {
    Status.ERROR: ("Errors", "[bold red]✗[/]"),
    Status.WARNING: ("Warnings", "[yellow]![/]"),
    Status.OK: ("In order", "[green]✓[/]"),
}


def doctor(as_json: bool = typer.Option(False, "--json", help="Print one JSON object.")) -> None:
    """Check state folder, Dagster, GPU, trainers, disk and memory. Changes nothing; exit code 1 with an error."""
    from nvtrader_rl_dagster.doctor.examination import examine

    findings = examine(Home.from_env())
    healthy = not any(finding.status is Status.ERROR for finding in findings)
    if as_json:
        print_json({"ok": healthy, "findings": [asdict(finding) for finding in findings]})
    else:
        for status in _SHOWN:
            _print(status, [finding for finding in findings if finding.status is status])
    if not healthy:
        raise typer.Exit(1)


def _print(status: Status, findings: list[Finding]) -> None:
    if not findings:
        return
    title, mark = _SHOWN[status]
    table = Table(title=f"{title} ({len(findings)})", title_justify="left", show_header=False, box=None)
    table.add_column()
    table.add_column(no_wrap=True)
    # A path is folded, never cut: people copy it.
    table.add_column(overflow="fold")
    for finding in findings:
        remedy = f"\n[dim]→ {escape(finding.remedy)}[/]" if finding.remedy else ""
        table.add_row(mark, f"[bold]{escape(finding.check)}[/]", escape(finding.message) + remedy)
    console.print(table)
