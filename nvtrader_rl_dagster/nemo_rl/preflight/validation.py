"""Whether the validation that a configuration asks for is real."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nvtrader_rl_dagster.nemo_rl.preflight.case import Case
from nvtrader_rl_dagster.nemo_rl.preflight.data_blocks import DataBlock
from nvtrader_rl_dagster.nemo_rl.preflight.data_rows import Scan
from nvtrader_rl_dagster.nemo_rl.preflight.report import Finding, refuse, warn


def validation_sets(case: Case, blocks: Sequence[DataBlock]) -> list[str]:
    """Names of the validation sets; a part of the training set that is split off is `split`."""
    names = [block.name for block in blocks if block.role == "validation"]
    split = any(block.role == "train" and block.settings.get("split_validation_size") for block in blocks)
    return [*names, "split"] if split and not case.preference else names


def asked_for(case: Case) -> list[str]:
    """The settings that make a run validate."""
    section = case.section
    period = case.settings.number(f"{section}.val_period")
    found = [f"{section}.val_period {period}"] if period is not None and period > 0 else []
    return found + [
        f"{section}.{key}" for key in ("val_at_start", "val_at_end") if case.settings.get(f"{section}.{key}")
    ]


def check_validation(case: Case, blocks: Sequence[DataBlock]) -> Iterator[Finding]:
    """A run that validates has a set for it, and reads at least one batch."""
    if not case.trains:
        return
    section, sets, asked = case.section, validation_sets(case, blocks), asked_for(case)
    if asked and not sets:
        message = f"{', '.join(asked)}: there is no validation set"
        remedy = f"set data.validation, or {section}.val_period: 0 with val_at_start and val_at_end: false"
        period = case.settings.number(f"{section}.val_period") or 0
        # SFT refuses a period only; DPO and RM validate nothing and say nothing.
        if case.rl or (section == "sft" and period > 0):
            yield refuse("no_validation_data", message, remedy)
        else:
            yield warn("no_validation_data", f"{message}; nothing would be validated", remedy)
    if sets and not asked:
        yield warn(
            "never_validated",
            f"there is a validation set, but {section}.val_period, val_at_start and val_at_end are off",
            f"set {section}.val_at_end: true",
        )
    if case.rl and asked and sets:
        yield from _batches(case)


def _batches(case: Case) -> Iterator[Finding]:
    section = case.section
    samples = case.settings.number(f"{section}.max_val_samples")
    batch = case.settings.number(f"{section}.val_batch_size")
    if samples is None or not batch or batch < 1:
        return
    # 0.7.0 rounds up for distillation only.
    batches = -(-samples // batch) if section == "distillation" and case.version == "0.7.0" else samples // batch
    if not batches:
        message = (
            f"{section}.max_val_samples {samples} is less than val_batch_size {batch}: validation would read no batch "
            "and report accuracy 0"
        )
        yield refuse("empty_validation", message, f"set {section}.val_batch_size to at most {max(1, samples)}")


def check_overlap(scans: Sequence[Scan]) -> Iterator[Finding]:
    """Prompts that stand in training and in validation make the validation look better than it is."""
    trained: set[int] = set()
    for scan in scans:
        if scan.block.role == "train":
            trained |= scan.prompts
    for scan in scans:
        if scan.block.role == "validation" and (shared := len(scan.prompts & trained)):
            message = f"{shared:,} of {len(scan.prompts):,} prompts of {scan.block.name} are trained on as well"
            yield warn("overlap", message, "hold out whole prompts")
