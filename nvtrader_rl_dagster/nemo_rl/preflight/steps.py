"""How many optimizer steps a run will make: NeMo-RL exits with 0 when the answer is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nvtrader_rl_dagster.files import read_json
from nvtrader_rl_dagster.nemo_rl.checkpoints import newest_checkpoint
from nvtrader_rl_dagster.nemo_rl.preflight.case import Case, Start
from nvtrader_rl_dagster.nemo_rl.preflight.data_rows import Scan
from nvtrader_rl_dagster.nemo_rl.preflight.report import Finding, ok, refuse


@dataclass
class StepPlan:
    """steps: from where the run starts; None when the rows are not known. epoch: batches of one epoch."""

    steps: int | None = None
    per_epoch: int | None = None
    findings: list[Finding] = field(default_factory=list)


def plan_steps(case: Case, scans: Sequence[Scan], all_counted: bool) -> StepPlan:
    """Steps of the run; the last incomplete batch of an epoch is dropped. all_counted: no train set is left out."""
    plan = StepPlan()
    if not case.trains:
        return plan
    section, settings = case.section, case.settings
    epochs, most = settings.number(f"{section}.max_num_epochs"), settings.number(f"{section}.max_num_steps")
    unlimited = section == "rm" and most == -1
    for key, value, allowed in (("max_num_epochs", epochs, False), ("max_num_steps", most, unlimited)):
        if value is not None and value < 1 and not allowed:
            message = f"{section}.{key} is {value}: the run would end at once and say that it succeeded"
            plan.findings.append(refuse("zero_steps", message, f"set {section}.{key} to at least 1"))
    if settings.number("checkpointing.save_period") == 0:
        message = "checkpointing.save_period is 0, and steps are divided by it"
        plan.findings.append(refuse("save_period", message, "set checkpointing.save_period to at least 1"))
    if plan.findings:
        return plan
    batch, key = _batch(case)
    rows = _training_rows(case, scans, plan)
    if plan.findings or batch is None or not all_counted or not scans:
        return plan
    if settings.get("data.use_multiple_dataloader"):
        plan.steps = most
        return plan
    plan.per_epoch = rows // batch
    if rows and not plan.per_epoch:
        message = f"{rows:,} training rows do not fill one batch of {key} {batch:,}: no step would be made"
        plan.findings.append(refuse("zero_steps", message, f"import more feedback, or set {key} to at most {rows:,}"))
        plan.steps = 0
        return plan
    if epochs is None or not plan.per_epoch:
        return plan
    limit = math.inf if unlimited or most is None else most
    _from_where_it_starts(case, plan, epochs, limit)
    return plan


def _from_where_it_starts(case: Case, plan: StepPlan, epochs: int, limit: float) -> None:
    assert plan.per_epoch is not None
    section = case.section
    done = _progress(case)
    if done is None:
        plan.steps = int(min(plan.per_epoch * epochs, limit))
    else:
        epoch, in_epoch, total = done
        # A checkpoint at the end of an epoch has an exhausted order: the rest of that epoch is nothing.
        in_epoch %= plan.per_epoch
        whole = epochs - epoch - 1
        left = whole * plan.per_epoch + (plan.per_epoch - in_epoch if in_epoch else 0)
        plan.steps = int(max(0, min(left, limit - total)))
        if not plan.steps:
            steps = f" and {section}.max_num_steps above {total}" if limit <= total else ""
            plan.findings.append(
                refuse(
                    "nothing_left",
                    f"the newest checkpoint has made {total:,} steps and ended in epoch {epoch + 1} of {epochs}: "
                    "no step would be made",
                    f"raise {section}.max_num_epochs{steps}, or use a new checkpoint_dir",
                )
            )
            return
    plural = "" if plan.steps == 1 else "s"
    plan.findings.append(ok("steps", f"{plan.steps:,} optimizer step{plural} ({plan.per_epoch:,} in each epoch)"))


def _progress(case: Case) -> tuple[int, int, int] | None:
    """Epoch from 0, steps in it, and steps in all of the newest checkpoint; None without one."""
    newest = newest_checkpoint(case.checkpoints) if case.checkpoints else None
    if newest is None or case.start is Start.NEW:
        return None
    info: dict[str, Any] = read_json(newest.path / "training_info.json")
    epoch, step = info.get("epoch", info.get("current_epoch")), info.get("step", info.get("current_step"))
    total = info.get("total_steps", newest.step)
    if not isinstance(epoch, int) or not isinstance(step, int) or not isinstance(total, int):
        return None
    return epoch, step, total


def _batch(case: Case) -> tuple[int | None, str]:
    """Rows of one step, and the key that says so."""
    if not case.rl:
        key = "policy.train_global_batch_size"
        size = case.settings.number(key)
        return (size if size and size > 0 else None), key
    key = f"{case.section}.num_prompts_per_step"
    size = case.settings.number(key)
    if size and case.settings.get(f"{case.section}.use_dynamic_sampling"):
        factor = case.settings.get(f"{case.section}.batch_multiplier", 1)
        if isinstance(factor, (int, float)):
            size = int(size * factor)
    return (size if size and size > 0 else None), key


def _training_rows(case: Case, scans: Sequence[Scan], plan: StepPlan) -> int:
    """Rows that are trained on: what a block gives to validation is taken off."""
    rows = 0
    for scan in scans:
        if scan.block.role != "train":
            continue
        share = scan.block.settings.get("split_validation_size") or 0
        held_out = 0
        if scan.block.dataset_name == "ResponseDataset" and isinstance(share, (int, float)) and share > 0:
            held_out = share if isinstance(share, int) else math.ceil(share * scan.rows)
        if scan.rows and held_out >= scan.rows:
            message = f"{scan.block.key}.split_validation_size leaves nothing of {scan.rows:,} rows to train on"
            plan.findings.append(refuse("split_validation_size", message, "make it smaller, or leave it out"))
        rows += max(0, scan.rows - held_out)
    return rows
