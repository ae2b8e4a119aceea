"""`nvtrader-rl demo`: the whole loop once, through Dagster, with progress and a summary."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import uuid
from importlib.resources import files
from pathlib import Path
from typing import IO

import orjson
import typer

from nvtrader_rl_dagster.cli.console import console, errors, fail
from nvtrader_rl_dagster.cli.feedback import opened_store, problems_end_the_command
from nvtrader_rl_dagster.cli.reports import print_set_aside
from nvtrader_rl_dagster.cli.up import prepare_home
from nvtrader_rl_dagster.nemo_rl.log_parser import LogParser

JOB = "feedback_to_champion"
#: Tag of the Dagster run of one demo.
RUN_TAG = "nvtrader/demo"
_STAGE = re.compile(r" - (\w+) - STEP_(START|SUCCESS|FAILURE)\b")
_SECONDS_BETWEEN_LINES = 5.0
_CHECK_STAGE = re.compile(r"\w+_dataset_\w+|dpo_checkpoint_\w+|eval_scores_\w+")
#: Less than half of the sample's training pairs, so that two slow cores need under five minutes. One's
#: own data are trained on in full.
SAMPLE_TRAINING: dict[str, str | int] = {"batch_pairs": 12, "max_steps": 5, "validation_pairs": 16}


def demo(
    data: Path = typer.Option(None, help="Your own feedback file or folder; by default the packaged sample."),
    base_model: str = typer.Option("auto", help="auto, builtin:smollm2, builtin:tiny or a Hugging Face folder."),
) -> None:
    """Import feedback, run the whole loop once, say what came out."""
    from nvtrader_rl_dagster.cli.demo_summary import print_failure, print_summary

    home = prepare_home()
    started = time.monotonic()
    console.rule("[bold]1. feedback[/]", align="left")
    _import(data)
    console.rule("[bold]2. the loop, as one Dagster run[/]", align="left")
    tag = uuid.uuid4().hex
    log = home.root / "demo.log"
    training = {**({} if data else SAMPLE_TRAINING), "base_model": base_model}
    code = _run_job(tag, training, log)
    console.rule("[bold]3. what came out[/]", align="left")
    if code != 0:
        print_failure(tag, log)
        raise typer.Exit(1)
    print_summary(home, tag, time.monotonic() - started)


def sample_file() -> Path:
    """The packaged sample: written for this project, not real people's decisions."""
    return Path(str(files("nvtrader_rl_dagster") / "sample" / "feedback.jsonl"))


def _import(data: Path | None) -> None:
    from nvtrader_rl_dagster.feedback.importing import import_paths
    from nvtrader_rl_dagster.feedback.pair_report import SAMPLE_SOURCE

    path = data or sample_file()
    with problems_end_the_command(), opened_store() as store:
        report = import_paths(store, [path], source=None if data else SAMPLE_SOURCE)
    label = str(data) if data else "the packaged sample (written for this project, not real decisions)"
    console.print(f"{label}: {report.rows:,} decisions, usable pairs: {report.usable_pairs:,}", markup=False)
    print_set_aside(dict(report.set_aside), report.first_problems, shown=3)
    if report.set_aside.get("sample_data"):
        console.print("This store holds feedback of your own, so the sample stays out of training.")


def _run_job(tag: str, training: dict[str, str | int], log: Path) -> int:
    """Execute the job in a child process; show its stages and its training as they happen."""
    config = log.with_name("demo_config.yaml")
    config.write_bytes(orjson.dumps({"ops": {"dpo_checkpoint": {"config": training}}}))
    command = [
        *(sys.executable, "-m", "dagster", "job", "execute", "-m", "nvtrader_rl_dagster.definitions"),
        *("-j", JOB, "-c", str(config), "--tags", orjson.dumps({RUN_TAG: tag}).decode()),
    ]
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert child.stdout is not None
    try:
        with log.open("w", encoding="utf-8") as file:
            _show(child.stdout, file)
        return child.wait()
    except KeyboardInterrupt:
        # The terminal sent it to the child as well; let it stop its trainer.
        errors.print("stopping ...")
        child.wait()
        fail("stopped by hand", 130)


def _show(lines: IO[str], log: IO[str]) -> None:
    """Copy the child's output to the log; print a line per stage and a training line every few seconds."""
    parser, shown = LogParser(), 0.0
    stage_started: dict[str, float] = {}
    loss = accuracy = seconds = None
    for line in lines:
        log.write(line)
        log.flush()
        if match := _STAGE.search(line):
            name, event = match.groups()
            stage_started.setdefault(name, time.monotonic())
            if event == "START" and not _CHECK_STAGE.fullmatch(name):
                console.print(f"[cyan]▶[/] {name}")
            elif event == "SUCCESS" and not _CHECK_STAGE.fullmatch(name):
                console.print(f"[green]✓[/] {name} ({time.monotonic() - stage_started[name]:.0f} s)")
            elif event == "FAILURE":
                console.print(f"[red]✗[/] {name}")
            continue
        for metric in parser.feed(line):
            if metric.split == "train" and metric.name == "loss":
                loss = metric.value
            elif metric.split == "train" and metric.name == "accuracy":
                accuracy = metric.value
            elif metric.name == "step_seconds":
                seconds = metric.value
            elif metric.split == "validation" and metric.name == "loss" and metric.value is not None:
                console.print(f"    step {metric.step}: held-out loss {metric.value:.4f}", markup=False)
        if line.lstrip().startswith("✓") and time.monotonic() - shown > _SECONDS_BETWEEN_LINES:
            shown = time.monotonic()
            console.print("    " + line.strip(), markup=False)
        if loss is not None and time.monotonic() - shown > _SECONDS_BETWEEN_LINES:
            shown = time.monotonic()
            total = (parser.steps_per_epoch or 0) * (parser.epochs or 1)
            at = f"{accuracy:.2f}" if accuracy is not None else "-"
            left = (total - parser.step) * (seconds or 0)
            about = f", about {left / 60:.0f} min left" if left >= 60 else ""
            console.print(f"    step {parser.step}/{total}: loss {loss:.4f}, accuracy {at}{about}", markup=False)
            loss = None
