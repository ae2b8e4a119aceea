"""A training run from launch to its end, over crashes in between; `run.json` says what really happened."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import yaml

from nvtrader_rl_dagster.nemo_rl.backends import Trainer
from nvtrader_rl_dagster.nemo_rl.conclusion import conclude
from nvtrader_rl_dagster.nemo_rl.export.exporter import Exporter
from nvtrader_rl_dagster.nemo_rl.launch_files import Limits
from nvtrader_rl_dagster.nemo_rl.log_parser import Metric
from nvtrader_rl_dagster.nemo_rl.resume import is_resumable, prepare_resume
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunRecord, RunState
from nvtrader_rl_dagster.nemo_rl.supervised import SupervisedProcess


class TrainingFailedError(Exception):
    """A run that ended without a trained checkpoint. `failure` is what `run.json` holds."""

    def __init__(self, run_id: str, failure: Mapping[str, Any]) -> None:
        self.failure = failure
        super().__init__(f"training run {run_id} failed ({failure['code']}): {failure['line']} {failure['advice']}")


class TrainingCancelledError(Exception):
    """A run that somebody asked to stop."""


class TrainingRun:
    """One run in its folder, whose `config.yaml` is written already."""

    def __init__(
        self,
        directory: RunDirectory,
        trainer: Trainer,
        lease: Path,
        limits: Limits,
        threads: int = 0,
        max_attempts: int = 1,
    ) -> None:
        self.directory = directory
        self.trainer = trainer
        self._lease = lease
        self._limits = limits
        self._threads = threads
        self._max_attempts = max_attempts

    def start(self, detached: bool = False) -> SupervisedProcess:
        """Launch the trainer once. A detached one outlives this process; its supervisor concludes the run."""
        record = self.directory.record()
        return SupervisedProcess(
            self.directory,
            self.trainer.command(record.algo, self.directory.config),
            self.trainer.environment(self._threads),
            self._lease,
            self._limits,
            cwd=self.trainer.cwd,
            attempt=record.attempt,
            detached=detached,
            uses_ray=self.trainer.source is not None,
        )

    def stream(self) -> Generator[list[Metric], None, None]:
        """Run to the end; metrics as they arrive (an empty list each second without any).

        A crash of supervisor or trainer goes on from the newest complete checkpoint, `max_attempts` times in all.
        Raises `TrainingFailedError` or `TrainingCancelledError`; leaves no process behind when the consumer stops
        or is interrupted.
        """
        while True:
            record = yield from self._attempt()
            if record.state is RunState.SUCCEEDED:
                return
            assert record.failure is not None
            if record.state is RunState.CANCELLED:
                raise TrainingCancelledError(f"training run {record.run_id} was {record.failure['line']}")
            if not is_resumable(self.directory, record) or record.attempt >= self._max_attempts:
                raise TrainingFailedError(record.run_id, record.failure)
            prepare_resume(self.directory, record.dagster_run_id)

    def export(self) -> list[Path]:
        """Hugging Face folders of the newest and the best checkpoint, made where there are none yet.

        Raises `ExportError`.
        """
        exporter = Exporter(self.directory, self.trainer, self._lease, self._limits, self._threads)
        return exporter.newest_and_best()

    def _attempt(self) -> Generator[list[Metric], None, RunRecord]:
        process = self.start()
        try:
            yield from process.metrics()
            process.wait()
        except BaseException:
            process.stop()
            conclude(self.directory)
            raise
        return conclude(self.directory)


def write_config(directory: RunDirectory, config: Mapping[str, Any]) -> None:
    """The YAML that the trainer reads."""
    directory.config.write_text(yaml.safe_dump(dict(config), sort_keys=False), encoding="utf-8")
