"""A training run from launch to manifest: what `run.json` says is always what really happened."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Generator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import yaml

from nvtrader_rl_dagster.nemo_rl.checkpoints import Checkpoint, complete_checkpoints
from nvtrader_rl_dagster.nemo_rl.configs import BuiltConfig, PreferenceData
from nvtrader_rl_dagster.nemo_rl.invocation import TrainerProcess, read_metrics
from nvtrader_rl_dagster.nemo_rl.log_parser import Metric
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunState, timestamp


class TrainingFailedError(Exception):
    """A run that ended without a trained checkpoint. `failure` is what `run.json` holds."""

    def __init__(self, run_id: str, failure: Mapping[str, Any]) -> None:
        self.failure = failure
        super().__init__(f"training run {run_id} failed ({failure['code']}): {failure['line']} {failure['advice']}")


class TrainingRun:
    """One run of the embedded trainer in its run directory."""

    def __init__(self, directory: RunDirectory, built: BuiltConfig, data: PreferenceData) -> None:
        self.directory = directory
        self._built = built
        self._data = data
        directory.config.write_text(yaml.safe_dump(built.config, sort_keys=False), encoding="utf-8")

    def stream(
        self, command: list[str], env: Mapping[str, str], echo: Callable[[str], object], grace_seconds: float
    ) -> Generator[list[Metric], None, None]:
        """Run to the end; metrics as they arrive (an empty list each second without any).

        Raises `TrainingFailedError`; leaves no process behind when the consumer stops or is interrupted.
        """
        process = TrainerProcess(command, self.directory, env, echo=echo, grace_seconds=grace_seconds)
        self.directory.update(state=RunState.RUNNING, started=timestamp())
        try:
            yield from process.metrics()
            code = process.wait()
        except BaseException as error:
            process.stop()
            self._end(
                # An interrupt, and a consumer that stops reading, are no `Exception`.
                RunState.FAILED if isinstance(error, Exception) else RunState.CANCELLED,
                exit_code=process.wait(),
                failure={"code": "interrupted", "line": repr(error), "advice": "start it again"},
            )
            raise
        self._finish(process, code)

    def _finish(self, process: TrainerProcess, code: int) -> None:
        checkpoints = complete_checkpoints(self.directory.checkpoints)
        failure = None
        if code != 0:
            last = next((line for line in reversed(process.tail) if line.strip()), "no output")
            failure = {
                "code": "exit",
                "line": last.strip(),
                "advice": f"(exit code {code}; the whole log: {self.directory.log})",
            }
        elif process.parser.steps_seen == 0:
            # NeMo-RL exits with 0 when the data do not fill one batch.
            failure = {
                "code": "zero_steps",
                "line": "the trainer ended without one optimizer step.",
                "advice": "Import more feedback, or set a smaller batch_pairs.",
            }
        elif not checkpoints:
            failure = {
                "code": "no_checkpoint",
                "line": "the trainer ended without a complete checkpoint.",
                "advice": f"Look into {self.directory.log}.",
            }
        for checkpoint in checkpoints:
            checkpoint.write_manifest(self._manifest(checkpoint))
        self._end(RunState.FAILED if failure else RunState.SUCCEEDED, exit_code=code, failure=failure)
        if failure:
            raise TrainingFailedError(self.directory.run_id, failure)

    def _end(self, state: RunState, exit_code: int, failure: dict[str, Any] | None) -> None:
        self.directory.update(state=state, ended=timestamp(), exit_code=exit_code, failure=failure)

    def _manifest(self, checkpoint: Checkpoint) -> dict[str, Any]:
        record = self.directory.record()
        metrics = {
            f"{m.split}/{m.name}": m.value
            for m in read_metrics(self.directory.metrics)
            if m.step == checkpoint.step and m.value is not None
        }
        return {
            "checkpoint_id": f"{record.run_id}/step_{checkpoint.step}",
            "run_id": record.run_id,
            "step": checkpoint.step,
            "algo": record.algo,
            "backend": record.backend,
            "base_model": self._built.config["policy"]["model_name"],
            "data_version": self._data.data_version,
            "ledger_id": self._data.ledger_id,
            "trained_through_seq": self._data.through_seq,
            "validation_fraction": self._data.validation_fraction,
            "config_hash": self._built.config_hash,
            "weights_sha256": checkpoint.weights_sha256(),
            "versions": versions(),
            "metrics": metrics,
        }


def versions() -> dict[str, str]:
    """Versions of what a checkpoint depends on; a package that is not installed is left out."""
    found = {"python": platform.python_version()}
    for package in ("nvtrader-rl-dagster", "dagster", "torch", "transformers"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def embedded_trainer(arguments: list[str]) -> list[str]:
    """Command of the embedded trainer, in the interpreter that runs us."""
    return [sys.executable, "-u", "-m", "nvtrader_rl_dagster.local_trainer", *arguments]


def embedded_environment(threads: int | None) -> dict[str, str]:
    """The environment of the embedded trainer: no hub, no telemetry, threads that yield to neighbours."""
    environment = {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # Spinning OpenMP barriers made two threads many times slower beside a busy neighbour.
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    if threads:
        environment["OMP_NUM_THREADS"] = str(threads)
    return environment
