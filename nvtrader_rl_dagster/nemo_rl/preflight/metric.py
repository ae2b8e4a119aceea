"""Whether the metric that ranks checkpoints is one that the algorithm produces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nvtrader_rl_dagster.nemo_rl.preflight.case import Case
from nvtrader_rl_dagster.nemo_rl.preflight.data_blocks import DataBlock
from nvtrader_rl_dagster.nemo_rl.preflight.report import Finding, ok, refuse, warn
from nvtrader_rl_dagster.nemo_rl.preflight.validation import validation_sets

#: Metrics of one validation set, in `nemo_rl/algorithms/{dpo,rm}.py` (DPOValMetrics, RMValMetrics) of both releases.
_RM = ("loss", "accuracy", "rewards_chosen_mean", "rewards_rejected_mean", "num_valid_samples")
_DPO = (*_RM, "sft_loss", "preference_loss", "global_valid_seqs", "global_valid_toks")
_LOWER = ("loss", "error")
_HIGHER = ("accuracy", "reward", "rewards_chosen_mean")


def check_metric(case: Case, blocks: Sequence[DataBlock]) -> Iterator[Finding]:
    """The name has its prefix, is produced, has values when checkpoints are saved, and the right direction."""
    settings = case.settings
    name = settings.get("checkpointing.metric_name")
    if not case.trains or not settings.get("checkpointing.enabled") or name is None:
        return
    source, _, metric = str(name).partition(":")
    produced = _produced(case, validation_sets(case, blocks))
    remedy = f"use one of: {', '.join(f'val:{x}' for x in produced[:5])}"
    if source not in ("val", "train") or not metric:
        message = f"checkpointing.metric_name {name!r} has no prefix; the first save would end the run"
        yield refuse("metric_name", message, f"write val:{name}" if f"{name}" in produced else remedy)
    elif source == "train":
        yield from _direction(case, metric)
    elif not produced:
        message = (
            f"checkpointing.metric_name is {name}, and there is no validation set: the newest checkpoints are kept"
        )
        yield warn("metric_without_data", message, "set checkpointing.metric_name: null, or data.validation")
    elif metric not in produced:
        message = f"checkpointing.metric_name {name!r} is not produced by {case.algorithm.name}"
        if case.rl:
            # NeMo-Gym and environments of users' own may add metrics.
            yield warn("metric_name", f"{message} itself", remedy)
        else:
            yield refuse("metric_name", f"{message}; the first save would end the run", remedy)
    else:
        yield ok("metric_name", f"checkpoints are ranked by {name}")
        yield from _direction(case, metric)
        yield from _periods(case)


def _produced(case: Case, sets: Sequence[str]) -> list[str]:
    if not sets:
        return []
    if not case.preference:
        return ["val_loss"] if case.section == "sft" else ["accuracy", "avg_length"]
    names = _DPO if case.section == "dpo" else _RM
    return [f"validation-{name}_{metric}" for name in sets for metric in names]


def _direction(case: Case, metric: str) -> Iterator[Finding]:
    higher = case.settings.get("checkpointing.higher_is_better")
    if (metric.endswith(_LOWER) and higher is True) or (metric.endswith(_HIGHER) and higher is False):
        message = f"checkpointing.higher_is_better is {str(higher).lower()} for {metric}: the worst ones would be kept"
        yield warn("metric_direction", message, f"set checkpointing.higher_is_better: {str(not higher).lower()}")


def _periods(case: Case) -> Iterator[Finding]:
    """A checkpoint without a validation at its step has no metric, and ranks last."""
    section = case.section
    save, period = case.settings.number("checkpointing.save_period"), case.settings.number(f"{section}.val_period")
    steps = case.settings.number(f"{section}.max_num_steps")
    if not save or save < 1 or period is None or (steps is not None and 0 < steps <= save):
        return  # only the last step is saved
    if period <= 0 or save % period:
        message = f"checkpointing.save_period {save} is no multiple of {section}.val_period {period}"
        remedy = f"set {section}.val_period to {save}, or to a divisor of it"
        yield warn("metric_missing", f"{message}: those checkpoints have no metric and rank last", remedy)
    if not case.settings.get(f"{section}.val_at_end"):
        message = f"{section}.val_at_end is off: the last checkpoint may have no metric and rank last"
        yield warn("metric_missing_at_end", message, f"set {section}.val_at_end: true")
