"""`nvtrader-rl log`: what the log of a training or benchmark says, in numbers."""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape
from rich.table import Table

from nvtrader_rl_dagster.cli.console import console, facts, fail, print_json
from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS
from nvtrader_rl_dagster.nemo_rl.log_parser import clean
from nvtrader_rl_dagster.nemo_rl.logs.report import LogReport, read_log_file
from nvtrader_rl_dagster.nemo_rl.logs.samples import read_samples
from nvtrader_rl_dagster.nemo_rl.logs.tensorboard import read_scalars
from nvtrader_rl_dagster.nemo_rl.metric_names import METRIC_NAMES

app = typer.Typer(help="Logs of NeMo-RL and of the embedded trainer, in numbers.", no_args_is_help=True)

AsJson = typer.Option(False, "--json", help="Print one JSON object.")

_SHOWN_ROWS = 30
_SHOWN_CHARACTERS = 400
_SHOWN_COLUMNS = 6
_COLUMNS = (
    *("loss", "accuracy", "reward", "score", "filtered_reward", "rewards_chosen_mean", "rewards_rejected_mean"),
    *("critic_loss", "gen_kl_error", "kl_penalty", "mean_gen_tokens_per_sample", "avg_length", "num_samples"),
    *("grad_norm", "step_seconds", "validation_seconds"),
)


@app.command()
def parse(
    file: str = typer.Argument(help="Output of a run, a run's log.jsonl, or - for standard input.", show_default=False),
    algo: str = typer.Option(None, help=f"What was run: {', '.join(ALGOS)}."),
    log_dir: Path = typer.Option(
        None,
        help="NeMo-RL's log folder: its TensorBoard scalars add what the log does not print.",
        show_default="logs beside a run's log.jsonl",
    ),
    as_json: bool = AsJson,
) -> None:
    """Steps, validations and checkpoints of a log, how the run ended and why it failed."""
    if algo is not None and algo not in ALGOS:
        fail(f"--algo {algo} is none of: {', '.join(ALGOS)}", 2)
    if log_dir is not None and not log_dir.is_dir():
        fail(f"--log-dir {log_dir} is no folder; it is `logger.log_dir` of the run's configuration", 2)
    try:
        report = _of_standard_input(algo) if file == "-" else read_log_file(Path(file), algo)
        beside = Path(file).parent / "logs"
        if log_dir is None and Path(file).name == "log.jsonl" and beside.is_dir():
            log_dir = beside
        if log_dir is not None:
            report = report.with_scalars(read_scalars(log_dir))
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror or error}", 2)
    except ValueError as error:
        fail(str(error), 2)
    if as_json:
        print_json(asdict(report))
    else:
        _show(report)


@app.command()
def samples(
    file: Path = typer.Argument(help="train_data_step<N>.jsonl or val_data_step<N>.jsonl.", show_default=False),
    limit: int = typer.Option(10, min=1, help="At most so many, the best and the worst."),
    as_json: bool = AsJson,
) -> None:
    """Answers that an RL training wrote down, the best first."""
    try:
        found = sorted(read_samples(file), key=lambda s: (s.reward is None, -(s.reward or 0.0), s.index))
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror or error}", 2)
    except ValueError as error:
        fail(str(error), 2)
    shown = found if len(found) <= limit else found[: -(-limit // 2)] + found[len(found) - limit // 2 :]
    rewards = [s.reward for s in found if s.reward is not None]
    mean = sum(rewards) / len(rewards) if rewards else None
    if as_json:
        print_json({"samples": [asdict(s) for s in shown], "total": len(found), "mean_reward": mean})
        return
    console.print(f"{len(found)} samples, mean reward {_number(mean)}")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("index", "reward", "tokens", "text"):
        table.add_column(column, overflow="fold", justify="left" if column == "text" else "right")
    for s in shown:
        text = "\n".join(clean(line) for line in s.text.strip().splitlines())
        table.add_row(str(s.index), _number(s.reward), str(s.tokens or ""), escape(text[-_SHOWN_CHARACTERS:]))
    console.print(table)


@app.command()
def names(as_json: bool = AsJson) -> None:
    """What the metrics are: one name for every algorithm, NeMo-RL version and source."""
    if as_json:
        print_json({"names": dict(METRIC_NAMES)})
    else:
        facts("Metrics", list(METRIC_NAMES.items()))


def _of_standard_input(algo: str | None) -> LogReport:
    with tempfile.NamedTemporaryFile() as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        return read_log_file(Path(copy.name), algo)


def _show(report: LogReport) -> None:
    flags = {(f["step"], f["set"], f["name"]): f["flag"] for f in report.flags}
    _show_rows("Steps", report.steps, flags)
    _show_rows("Validations", report.validations, flags)
    for checkpoint in report.checkpoints:
        console.print(
            f"checkpoint of step {checkpoint['step']}: {checkpoint['path'] or 'folder unknown'}", markup=False
        )
    console.print(f"end: {report.end}")
    if report.failure:
        console.print(f"[bold red]{report.failure['code']}:[/] {escape(report.failure['line'])}")
        console.print(escape(report.failure["advice"]))


def _show_rows(title: str, rows: list[dict[str, Any]], flags: dict[tuple[int, str | None, str], str]) -> None:
    """At most 30 rows, evenly thinned, the last one always among them, and the columns that say most."""
    if not rows:
        return
    stride = -(-len(rows) // _SHOWN_ROWS)
    shown = rows[(len(rows) - 1) % stride :: stride]
    there = set(itertools.chain.from_iterable(row["metrics"] for row in rows))
    names = [name for name in _COLUMNS if name in there][:_SHOWN_COLUMNS]
    sets = {row.get("set") for row in rows} - {None, "default"}
    table = Table(title=f"{title} ({len(shown)} of {len(rows)})", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in ("step", *(["set"] if sets else []), *(name.replace("_", " ") for name in names)):
        table.add_column(column, justify="right", overflow="fold")
    for row in shown:
        cells = [flags.get((row["step"], row.get("set"), name)) or _number(row["metrics"].get(name)) for name in names]
        table.add_row(str(row["step"]), *([escape(row["set"])] if sets else []), *cells)
    console.print(table)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
