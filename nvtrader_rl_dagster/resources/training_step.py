"""One training inside a Dagster step: its events, and its end in Dagster's terms."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import dagster as dg

from nvtrader_rl_dagster.nemo_rl.export.exporter import ExportError
from nvtrader_rl_dagster.nemo_rl.log_parser import Metric
from nvtrader_rl_dagster.nemo_rl.runs import RunState
from nvtrader_rl_dagster.nemo_rl.training import TrainingCancelledError, TrainingFailedError, TrainingRun
from nvtrader_rl_dagster.resources.run_metadata import checkpoint_metadata

_RARER = 0.05


class TrainingStep:
    """One training that an asset streams."""

    def __init__(self, run: TrainingRun, context: dg.AssetExecutionContext, observe_every_seconds: float) -> None:
        self.run = run
        self._context = context
        self._every = observe_every_seconds

    def stream(self) -> Iterator[dg.AssetObservation | dg.MaterializeResult]:
        """Observations while it trains, one materialization at its end.

        Raises `dg.Failure` with the reason. However the step ends, no trainer process is left. A training that an
        earlier attempt of this Dagster run finished is only read.
        """
        directory = self.run.directory
        try:
            if directory.record().state is not RunState.SUCCEEDED:
                # Closed explicitly: an interrupt that lands here, between two batches, must end the trainer now.
                with contextlib.closing(self.run.stream()) as metrics:
                    yield from self._observations(metrics)
        except TrainingCancelledError as error:
            # Not a failure of the run: somebody wanted this.
            self._context.log.info(str(error))
            self._context.instance.report_run_canceling(self._context.run, message=str(error))
            raise dg.DagsterExecutionInterruptedError(str(error)) from error
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
        try:
            self.run.export()
        except ExportError as error:
            raise dg.Failure(
                f"training run {directory.run_id} succeeded, but {error}. Repeat the Dagster run to export it again.",
                metadata={"run_id": directory.run_id, "failure_code": "export"},
                allow_retries=False,
            ) from error
        yield checkpoint_metadata(directory, self.run.trainer.why)

    def _observations(self, metrics: Iterator[list[Metric]]) -> Iterator[dg.AssetObservation]:
        latest: dict[str, Any] = {}
        started = time.monotonic()
        due = started + self._every
        for batch in metrics:
            latest.update(_flat(batch))
            now = time.monotonic()
            if latest and now >= due:
                due = now + pause(now - started, self._every)
                yield dg.AssetObservation(
                    self._context.asset_key,
                    description=f"step {latest['step']}",
                    metadata={"run_id": self.run.directory.run_id, **latest},
                )


def pause(age: float, every: float) -> float:
    """Seconds to the next observation: the older a run, the longer, so that a week gives fewer than 200."""
    return max(every, age * _RARER)


def _flat(batch: list[Metric]) -> dict[str, Any]:
    values = {f"{m.split}/{m.name}": m.value for m in batch if m.value is not None}
    return {**values, "step": max((m.step for m in batch), default=0)} if batch else {}
