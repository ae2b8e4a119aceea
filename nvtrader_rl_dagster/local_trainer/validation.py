"""Validation of a policy on one or several sets of pairs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from nvtrader_rl_dagster.local_trainer.console import say, show_validation, warn
from nvtrader_rl_dagster.local_trainer.dpo_loss import COUNTS, METRICS, DpoLoss, mean_metrics
from nvtrader_rl_dagster.local_trainer.pair_set import PairSet, run_batch


def validation_batches(rows: int, batch_size: int, limit: int) -> list[list[int]]:
    """Rows of each validation batch in file order, the last one short; ``limit`` > 0 keeps the first batches."""
    batches = [list(range(at, min(at + batch_size, rows))) for at in range(0, rows, batch_size)]
    return batches[:limit] if limit > 0 else batches


def metric_names(sets: Sequence[str]) -> set[str]:
    """The names that ``val:`` metrics can have for these validation sets."""
    return {f"validation-{name}_{metric}" for name in sets for metric in (*METRICS, *COUNTS)}


def validate(
    model: Any, sets: Mapping[str, tuple[PairSet, list[list[int]]]], loss: DpoLoss, budget: int, step: int
) -> dict[str, float]:
    """Print and return ``validation-<set>_<metric>`` of each set, averaged over its valid pairs."""
    results: dict[str, float] = {}
    for name, (pairs, batches) in sets.items():
        say(f"▶ Starting validation at step {step} for `{name}` set..")
        start = time.perf_counter()
        columns = torch.cat([run_batch(model, pairs, batch, loss, budget, train=False) for batch in batches])
        if not len(columns):
            warn(f"validation set `{name}` has no valid pair: its metrics are zero and mean nothing")
        metrics = mean_metrics(columns, sum(pairs.trained_tokens(pairs.valid(batch)) for batch in batches))
        show_validation(name, metrics, time.perf_counter() - start)
        results |= {f"validation-{name}_{metric}": value for metric, value in metrics.items()}
    return results
