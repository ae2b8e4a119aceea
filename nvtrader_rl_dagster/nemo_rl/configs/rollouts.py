"""How many prompts, answers and updates a step has, so that they fit the data, the devices and each other."""

from __future__ import annotations

from dataclasses import dataclass

from nvtrader_rl_dagster.nemo_rl.configs.batches import data_parallel
from nvtrader_rl_dagster.nemo_rl.configs.data import TrainingData
from nvtrader_rl_dagster.nemo_rl.configs.rollout_options import RolloutOptions
from nvtrader_rl_dagster.nemo_rl.configs.target import Target
from nvtrader_rl_dagster.nemo_rl.configs.validation import plan_validation

#: Held-out prompts that are answered at once; generation batches on its own below that.
_LARGEST_VALIDATION_BATCH = 256


@dataclass(frozen=True)
class RolloutPlan:
    """prompts, samples: of one step. batch: samples per optimizer update. multiplier: prompts drawn at once are so many
    times `prompts`. val_samples: held-out prompts per validation, a multiple of val_batch. val_period: 0 without any.
    """

    prompts: int
    samples: int
    batch: int
    micro_batch: int
    multiplier: int
    steps: int
    val_period: int
    val_batch: int
    val_samples: int
    save_period: int
    notes: list[str]


def plan_rollouts(
    options: RolloutOptions, data: TrainingData, target: Target, *, least: int = 1, multiplier: int = 1
) -> RolloutPlan:
    """least: prompts that a step needs. multiplier: prompts drawn at once, in multiples of a step's, to choose from.

    NeMo-RL drops the last incomplete batch of prompts in each epoch, and reads `max_val_samples // val_batch_size`
    validation batches. Raises `ValueError`: too few prompts (`no_rows`), a step that cannot be shared out (`batch`),
    no room for a prompt (`tokens`).
    """
    rows = data.train_rows
    if rows < least:
        raise ValueError(
            f"no_rows: {data.train} holds {rows} training prompts and a step needs {least}; import more data first"
        )
    if options.max_new_tokens >= options.max_sequence_tokens:
        raise ValueError(
            f"tokens: max_new_tokens {options.max_new_tokens} leaves no room for a prompt in max_sequence_tokens "
            f"{options.max_sequence_tokens}; lower the first or raise the second"
        )
    notes: list[str] = []
    replicas = data_parallel(options, target)
    prompts = _prompts(options, max(least, rows // multiplier), replicas, least, notes)
    drawn = min(multiplier, rows // prompts)
    if drawn < multiplier:
        notes.append(f"{drawn} times a step's prompts drawn at once instead of {multiplier}: there are only {rows}")
    samples = prompts * options.generations_per_prompt
    batch = samples // options.updates_per_step
    per_device = batch // replicas
    micro = max(size for size in range(1, min(options.micro_batch, per_device) + 1) if per_device % size == 0)
    if micro < options.micro_batch:
        notes.append(f"micro batch made {micro} instead of {options.micro_batch}, to divide {per_device} samples")
    per_epoch = rows // (prompts * drawn)
    steps = min(per_epoch * options.epochs, options.max_steps or per_epoch * options.epochs)
    if left_out := rows % (prompts * drawn):
        notes.append(f"{left_out} of {rows} prompts do not fill a step in each epoch")
    validation = plan_validation(
        options, data, rows=options.validation_prompts, replicas=replicas, unit="prompt", steps=steps
    )
    held_out = min(options.validation_prompts, data.validation_rows) if data.validates else 1
    val_batches = -(-held_out // _LARGEST_VALIDATION_BATCH)
    val_batch = held_out // val_batches
    return RolloutPlan(
        prompts=prompts,
        samples=samples,
        batch=batch,
        micro_batch=micro,
        multiplier=drawn,
        steps=steps,
        val_period=validation.period,
        val_batch=val_batch,
        val_samples=val_batch * val_batches,
        save_period=validation.save_period,
        notes=notes + validation.notes,
    )


def _prompts(options: RolloutOptions, available: int, replicas: int, least: int, notes: list[str]) -> int:
    """The most prompts, up to those asked for, whose answers divide into equal updates on each device."""
    asked, generations, updates = options.prompts_per_step, options.generations_per_prompt, options.updates_per_step
    most = min(max(asked, least), available)
    fitting = [n for n in range(most, least - 1, -1) if n * generations % (updates * replicas) == 0]
    if not fitting:
        raise ValueError(
            f"batch: at most {most} prompts x {generations} generations cannot be shared out over {updates} updates x "
            f"{replicas} data-parallel devices; lower updates_per_step, or give more prompts or generations"
        )
    prompts = fitting[0]
    if most < asked:
        notes.append(f"prompts per step shrunk from {asked} to {prompts}: the data has enough for {available}")
    elif prompts != asked:
        notes.append(
            f"prompts per step made {prompts} instead of {asked}: at least {least}, and {generations} generations each "
            f"for {updates} updates on {replicas} data-parallel devices"
        )
    return prompts
