"""`nvtrader-rl checkpoints`: what a run saved, which is best, and as a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from nvtrader_rl_dagster.cli.console import console, facts, fail, print_json
from nvtrader_rl_dagster.cli.runs import AsJson, RunId, find_run
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.checkpoints import EXPORT_REPORT, Checkpoint, best_checkpoint, complete_checkpoints
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory

app = typer.Typer(help="Checkpoints of a run: list, export.", no_args_is_help=True)


@app.command("list")
def list_(run: str = RunId, as_json: bool = AsJson) -> None:
    """Complete checkpoints of a run, oldest first, with the metric that ranks them."""
    directory = find_run(run)
    checkpoints = complete_checkpoints(directory.checkpoints)
    best, tracking = best_checkpoint(checkpoints), checkpoints[-1].tracking if checkpoints else None
    rows = [_row(checkpoint, best, checkpoints[-1]) for checkpoint in checkpoints]
    if as_json:
        ranked_by = {"name": tracking.name, "higher_is_better": tracking.higher_is_better} if tracking else None
        print_json({"run_id": directory.run_id, "tracked_metric": ranked_by, "checkpoints": rows})
        return
    if not rows:
        console.print(f"No complete checkpoint in {directory.checkpoints}.", markup=False)
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("step", "metric", "", "format", "Hugging Face folder"):
        table.add_column(column, overflow="fold")
    for row in rows:
        value = "not measured" if row["value"] is None else f"{row['value']:.6g}"
        marks = " ".join(mark for mark in ("best", "newest") if row[mark])
        folder = Path(row["huggingface"]).relative_to(directory.checkpoints) if row["exported"] else "not exported"
        table.add_row(str(row["step"]), value, marks, row["format"], str(folder))
    direction = "higher" if tracking and tracking.higher_is_better else "lower"
    metric = f"metric: {tracking.name}, {direction} is better" if tracking else "no metric ranks them"
    console.print(f"{directory.checkpoints}\n{metric}\n", markup=False, soft_wrap=True)
    console.print(table)


@app.command()
def export(
    run: str = RunId,
    step: str = typer.Option("newest", help="A step, `newest`, or `best` by the tracked metric."),
    out: Path = typer.Option(None, help="New folder for it; without it, `hf` in the checkpoint, where scoring looks."),
) -> None:
    """Make a Hugging Face folder of a checkpoint and prove that it loads. Needs no GPU."""
    from nvtrader_rl_dagster.files import read_json
    from nvtrader_rl_dagster.nemo_rl.backends import Backend, BackendError, choose_trainer
    from nvtrader_rl_dagster.nemo_rl.export.exporter import Exporter, ExportError
    from nvtrader_rl_dagster.nemo_rl.launch_files import Limits

    directory = find_run(run)
    checkpoint = _chosen(directory, step)
    record = directory.record()
    try:
        trainer = choose_trainer(Backend(record.backend), record.algo)
        exporter = Exporter(directory, trainer, Home.from_env().lease, Limits())
        folder = exporter.export(checkpoint, out.expanduser().absolute() if out else None)
    except (BackendError, ExportError) as error:
        fail(str(error))
    report = folder / EXPORT_REPORT
    measured = read_json(report) if report.exists() else {}
    facts(
        f"{record.run_id}, step {checkpoint.step}",
        [("Hugging Face folder", str(folder)), *((name, str(value)) for name, value in measured.items())],
    )


def _chosen(directory: RunDirectory, step: str) -> Checkpoint:
    checkpoints = complete_checkpoints(directory.checkpoints)
    if not checkpoints:
        fail(f"no complete checkpoint in {directory.checkpoints}")
    if step == "newest":
        return checkpoints[-1]
    if step == "best":
        best = best_checkpoint(checkpoints)
        if best is None:
            fail("no checkpoint of this run has a measured value of the metric that ranks them; give a step")
        return best
    for checkpoint in checkpoints:
        if step == str(checkpoint.step):
            return checkpoint
    steps = ", ".join(str(checkpoint.step) for checkpoint in checkpoints)
    fail(f"--step {step}: there is no such checkpoint; there are: {steps}, newest, best", 2)


def _row(checkpoint: Checkpoint, best: Checkpoint | None, newest: Checkpoint) -> dict[str, Any]:
    try:
        huggingface = str(checkpoint.huggingface)
    except FileNotFoundError:
        huggingface = None
    return {
        "step": checkpoint.step,
        "path": str(checkpoint.path),
        "value": checkpoint.measured(checkpoint.tracking),
        "best": checkpoint == best,
        "newest": checkpoint == newest,
        "format": checkpoint.format.value,
        "exported": huggingface is not None,
        "huggingface": huggingface,
    }
