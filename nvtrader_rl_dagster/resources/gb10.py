"""`GB10Resource`: the one device, and the trainer that runs on it.

An asset reads `yield from gb10.train("dpo", options, data, context=context).stream()`.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from pydantic import Field

from nvtrader_rl_dagster.files import read_json
from nvtrader_rl_dagster.nemo_rl.configs import DpoOptions, PreferenceData, build_dpo_config
from nvtrader_rl_dagster.nemo_rl.invocation import TrainerProcess
from nvtrader_rl_dagster.nemo_rl.log_parser import Metric
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunState
from nvtrader_rl_dagster.nemo_rl.training import (
    TrainingFailedError,
    TrainingRun,
    embedded_environment,
    embedded_trainer,
)
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.run_metadata import checkpoint_metadata

_RARER = 0.05


class Backend(str, Enum):
    """Which trainer a run uses. `auto` says in the metadata what it took and why."""

    AUTO = "auto"
    LOCAL = "local"


class Training:
    """One training that an asset streams."""

    def __init__(self, resource: "GB10Resource", run: TrainingRun, why: str, context: dg.AssetExecutionContext):
        self.run = run
        self._resource = resource
        self._why = why
        self._context = context

    def stream(self) -> Iterator[dg.AssetObservation | dg.MaterializeResult]:
        """Observations while it trains, one materialization at its end.

        Raises `dg.Failure` with the reason. However the step ends, no trainer process is left.
        """
        directory = self.run.directory
        arguments = [directory.record().algo, "--config", str(directory.config)]
        metrics = self.run.stream(
            embedded_trainer(arguments),
            embedded_environment(self._resource.threads),
            echo=sys.stdout.write,
            grace_seconds=self._resource.grace_seconds,
        )
        try:
            # Closed explicitly: an interrupt that lands here, between two batches, must end the trainer now.
            with contextlib.closing(metrics):
                yield from self._observations(metrics)
        except TrainingFailedError as error:
            raise dg.Failure(
                str(error),
                metadata={
                    "run_id": directory.run_id,
                    "log": dg.MetadataValue.path(str(directory.log)),
                    "failure_code": str(error.failure["code"]),
                },
                allow_retries=False,
            ) from error
        yield checkpoint_metadata(directory, self._why)

    def _observations(self, metrics: Iterator[list[Metric]]) -> Iterator[dg.AssetObservation]:
        latest: dict[str, Any] = {}
        started = time.monotonic()
        due = started + self._resource.observe_every_seconds
        for batch in metrics:
            latest.update(_flat(batch))
            now = time.monotonic()
            if latest and now >= due:
                # Rarer as the run grows older: a week gives fewer than 200 observations.
                due = now + max(self._resource.observe_every_seconds, (now - started) * _RARER)
                yield dg.AssetObservation(
                    self._context.asset_key,
                    description=f"step {latest['step']}",
                    metadata={"run_id": self.run.directory.run_id, **latest},
                )


class GB10Resource(dg.ConfigurableResource):
    """The training device. Without a GPU the embedded trainer runs the same YAML on the CPU."""

    backend: Backend = Field(
        default=Backend.AUTO, description="'local' is the embedded trainer; 'auto' picks and says why."
    )
    artifacts: dg.ResourceDependency[ArtifactStore]
    threads: int = Field(default=0, ge=0, description="CPU threads of the embedded trainer; 0 means one per core.")
    grace_seconds: float = Field(
        default=20.0,
        gt=0,
        description="Seconds between a polite stop and a forced one, for a checkpoint to be finished.",
    )
    observe_every_seconds: float = Field(
        default=30.0,
        gt=0,
        description="Seconds between the observations of a young training; an old one is observed less often.",
    )

    def train(
        self, algo: str, options: DpoOptions, data: PreferenceData, context: dg.AssetExecutionContext
    ) -> Training:
        """Prepare a run: its folder, its YAML, its record. Raises `dg.Failure` for data it cannot train on."""
        if algo != "dpo":
            raise dg.Failure(f"The embedded trainer has no {algo!r}; it has: dpo.", allow_retries=False)
        directory = self.artifacts.runs.create(
            algo,
            "local",
            data_hash=data.data_version,
            ledger_id=data.ledger_id,
            trained_through_seq=data.through_seq,
            dagster_run_id=context.run.run_id,
        )
        try:
            built = build_dpo_config(options, data, directory.checkpoints, directory.path / "logs")
        except ValueError as error:
            failure = {"code": "no_rows", "line": str(error), "advice": ""}
            directory.update(state=RunState.FAILED, failure=failure)
            raise dg.Failure(str(error), allow_retries=False) from error
        for note in built.notes:
            context.log.info(note)
        directory.update(config_hash=built.config_hash, notes=built.notes)
        return Training(self, TrainingRun(directory, built, data), self._why(), context)

    def score(self, models: dict[str, str], data_file: Path, out: Path, max_tokens: int) -> dict[str, Any]:
        """Log-probabilities of every pair of `data_file` under each model, written to `out/<name>.jsonl`.

        Returns the scorer's summary: for each model the pairs, seconds and off-topic loss.
        """
        out.mkdir(parents=True, exist_ok=True)
        config = out / "score.yaml"
        settings = {
            "models": models,
            "data_path": str(data_file),
            "output_dir": str(out),
            "max_total_sequence_length": max_tokens,
        }
        config.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
        # Scored again: the log is that of the newest scoring, numbered from one.
        RunDirectory(out).log.unlink(missing_ok=True)
        process = TrainerProcess(
            embedded_trainer(["score", "--config", str(config)]),
            RunDirectory(out),
            embedded_environment(self.threads),
            echo=sys.stdout.write,
            grace_seconds=self.grace_seconds,
        )
        try:
            for _ in process.metrics():
                pass
            code = process.wait()
        except BaseException:
            process.stop()
            raise
        if code != 0:
            raise dg.Failure(
                f"scoring ended with exit code {code}: {' | '.join(process.tail[-3:])}", allow_retries=False
            )
        summary: dict[str, Any] = read_json(out / "summary.json")
        return summary

    def try_model(self, path: str) -> tuple[bool, str]:
        """Load a model folder in a process of its own and let it predict: whether it works, and what it said."""
        done = subprocess.run(
            embedded_trainer(["check", path]),
            env=embedded_environment(self.threads),
            capture_output=True,
            text=True,
            check=False,
        )
        said = (done.stdout if done.returncode == 0 else done.stderr or done.stdout).strip()
        return done.returncode == 0, said.splitlines()[-1] if said else f"exit code {done.returncode}"

    def _why(self) -> str:
        if self.backend is Backend.LOCAL:
            return "local: asked for"
        return "local: the embedded trainer is the only backend of this version"


def _flat(batch: list[Metric]) -> dict[str, Any]:
    values = {f"{m.split}/{m.name}": m.value for m in batch if m.value is not None}
    return {**values, "step": max((m.step for m in batch), default=0)} if batch else {}
