"""`nvtrader-rl doctor`: what would keep the loop from running, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.markup import escape
from rich.table import Table

from nvtrader_rl_dagster.cli.console import console, print_json
from nvtrader_rl_dagster.doctor.finding import Finding, Status, gigabytes
from nvtrader_rl_dagster.home import Home

if TYPE_CHECKING:
    from nvtrader_rl_dagster.nemo_rl.env_report import EnvReport

_SHOWN = {
    Status.ERROR: ("Errors", "[bold red]✗[/]"),
    Status.WARNING: ("Warnings", "[yellow]![/]"),
    Status.OK: ("In order", "[green]✓[/]"),
}


def doctor(
    nemo_rl: bool = typer.Option(False, "--nemo-rl", help="Only NeMo-RL: what is there, and what is missing."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Check state folder, Dagster, GPU, trainers, disk and memory. Changes nothing; exit code 1 with an error."""
    if not (_nemo_rl(as_json) if nemo_rl else _everything(as_json)):
        raise typer.Exit(1)


def _everything(as_json: bool) -> bool:
    from nvtrader_rl_dagster.doctor.examination import examine

    findings = examine(Home.from_env())
    healthy = not any(finding.status is Status.ERROR for finding in findings)
    if as_json:
        print_json({"ok": healthy, "findings": [asdict(finding) for finding in findings]})
    else:
        for status in _SHOWN:
            _print(status, [finding for finding in findings if finding.status is status])
    return healthy


def _nemo_rl(as_json: bool) -> bool:
    from nvtrader_rl_dagster.nemo_rl.backends import Backend
    from nvtrader_rl_dagster.nemo_rl.env_report import env_report
    from nvtrader_rl_dagster.settings import device_settings

    report = env_report(Backend(device_settings().get("backend", Backend.AUTO)))
    if as_json:
        print_json(report.to_json())
    else:
        _print_report(report)
    return report.ready


def _print_report(report: EnvReport) -> None:
    source, interpreter, torch = report.source, report.interpreter, report.torch
    table = Table(show_header=False, box=None)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    state = "ready" if report.ready else "bootstrapped, not ready" if report.bootstrapped else "not bootstrapped"
    table.add_row("NeMo-RL", state)
    table.add_row("next training", escape(report.why))
    version = f"{source.version or 'no NeMo-RL'} {source.commit or ''}".strip()
    table.add_row("source", escape(f"{source.path}: {version}"))
    table.add_row("interpreter", escape(f"{report.python}: Python {interpreter.python if interpreter else '?'}"))
    if interpreter:
        installed = ", ".join(f"{name} {v}" for name, v in interpreter.versions.items() if v)
        table.add_row("packages", escape(installed or "none"))
    if torch:
        sees = f"capability {torch.capability}, computes: {torch.computes}" if torch.sees_gpu else "sees no GPU"
        table.add_row("torch", escape(f"{torch.version}, built for CUDA {torch.cuda or '(none)'}, {sees}"))
    for gpu in report.gpus:
        table.add_row("GPU", escape(f"{gpu.name}, capability {gpu.capability or '?'}, driver {gpu.driver}"))
    if report.memory:
        kind = "unified memory" if report.memory.unified else "memory"
        total, available = gigabytes(report.memory.total), gigabytes(report.memory.available)
        table.add_row(kind, f"{available} of {total} available")
    for venv in report.worker_venvs:
        table.add_row("worker", escape(f"{venv.name}: {venv.state.value}"))
    for item in report.missing:
        mark = "[bold red]missing[/]" if item.blocks else "[yellow]missing[/]"
        table.add_row(mark, f"{escape(item.what)}\n[dim]→ {escape(item.fix)}[/]")
    for problem in report.problems:
        table.add_row("[bold red]problem[/]", escape(problem))
    console.print(table)


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
