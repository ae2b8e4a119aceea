"""The console script `nvtrader-rl`."""

from __future__ import annotations

import typer

from nvtrader_rl_dagster.cli import (
    champion,
    checkpoints,
    config,
    demo,
    doctor,
    feedback,
    log,
    preflight,
    prune,
    runs,
    up,
)

app = typer.Typer(
    name="nvtrader-rl",
    help="Approve/reject feedback becomes a better language model.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
app.add_typer(feedback.app, name="feedback")
app.add_typer(runs.app, name="runs")
app.add_typer(checkpoints.app, name="checkpoints")
app.add_typer(log.app, name="log")
app.add_typer(champion.app, name="champion")
app.command("demo")(demo.demo)
app.command("up")(up.up)
app.command("doctor")(doctor.doctor)
app.command("config")(config.config)
app.command("preflight")(preflight.preflight)
app.command("prune")(prune.prune)

if __name__ == "__main__":
    app()
