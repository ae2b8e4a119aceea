"""When and on how much held-out data a training validates, so that each saved checkpoint has its metric."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nvtrader_rl_dagster.nemo_rl.configs.data import TrainingData
from nvtrader_rl_dagster.nemo_rl.configs.options import TrainingOptions

_LARGEST_BATCH = 32


@dataclass(frozen=True)
class Validation:
    """period: optimizer steps between validations, 0 without held-out rows. batches: at most so many of `batch` rows.

    save_period: the asked one, or the next multiple of `period`: NeMo-RL ranks a checkpoint by the metric that was
    measured at its own step, and puts one without such a metric last.
    """

    period: int
    batch: int
    batches: int
    save_period: int
    notes: list[str]


def plan_validation(
    options: TrainingOptions, data: TrainingData, *, rows: int, replicas: int, unit: str, steps: int
) -> Validation:
    """rows: held-out rows that each validation is to see at most. replicas: data-parallel devices."""
    if not data.validates:
        return Validation(0, replicas, 1, options.save_period, [f"no validation {unit}: no held-out loss, no gate"])
    batch = max(1, min(_LARGEST_BATCH, rows, data.validation_rows))
    batch += -batch % replicas
    notes = []
    period = options.validation_period or options.save_period
    save_period = options.save_period + -options.save_period % period
    if save_period != options.save_period and steps > options.save_period:
        notes.append(
            f"a checkpoint each {save_period} steps instead of {options.save_period}: a multiple of the validation "
            f"period {period}, so that each has its metric"
        )
    batches = max(1, min(rows // batch, math.ceil(data.validation_rows / batch)))
    return Validation(period, batch, batches, save_period, notes)
