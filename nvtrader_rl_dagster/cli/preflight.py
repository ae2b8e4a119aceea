"""`nvtrader-rl preflight`: what would make a training fail, without starting it."""

from __future__ import annotations

from pathlib import Path

import typer

from nvtrader_rl_dagster.cli.console import fail, print_json
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS
from nvtrader_rl_dagster.nemo_rl.backends import Backend, BackendError, choose_trainer
from nvtrader_rl_dagster.nemo_rl.preflight.case import Start


def preflight(
    algo: str = typer.Argument(help=f"One of {', '.join(ALGOS)}.", show_default=False),
    config: Path = typer.Argument(help="NeMo-RL's YAML, of ours or your own.", show_default=False),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
    resume: bool = typer.Option(False, "--resume", help="The same as --start resume."),
    start: Start = typer.Option(
        Start.AUTO, help="How checkpoints in the folder are meant: there are none, go on, or go on with other data."
    ),
    backend: Backend = typer.Option(Backend.AUTO, help="The trainer that it would run with."),
) -> None:
    """Check rows, lengths, steps, validation, checkpoints, memory, disk and trainer; exit code 1 with a refusal."""
    from nvtrader_rl_dagster.nemo_rl.preflight.check import preflight as examine
    from nvtrader_rl_dagster.nemo_rl.preflight.report import Report, refuse
    from nvtrader_rl_dagster.nemo_rl.preflight.settings import read_config

    if algo not in ALGOS:
        fail(f"there is no algorithm {algo!r}; there are: {', '.join(ALGOS)}", 2)
    try:
        settings = read_config(config)
    except ValueError as error:
        fail(str(error), 2)
    how = Start.RESUME if resume else start
    try:
        trainer = choose_trainer(backend, algo)
    except BackendError as error:
        problem = refuse("trainer", str(error), "nvtrader-rl doctor says what is missing")
        report = Report(algo, backend.value, "", (problem,))
    else:
        report = examine(algo, settings, trainer, start=how, cache=Home.from_env().lengths)
    if as_json:
        print_json(report.to_dict())
    else:
        typer.echo(report.text())
    if not report.accepted:
        raise typer.Exit(1)
