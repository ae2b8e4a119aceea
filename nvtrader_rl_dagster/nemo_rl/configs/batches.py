"""Batches and steps that fit the data, and what was changed to make them fit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nvtrader_rl_dagster.nemo_rl.configs.options import TrainingOptions
from nvtrader_rl_dagster.nemo_rl.configs.target import Target


@dataclass(frozen=True)
class Plan:
    """batch: rows per optimizer step over all devices. micro_batch: rows that one device computes at once."""

    batch: int
    micro_batch: int
    steps: int
    notes: list[str]


def plan_batches(options: TrainingOptions, target: Target, *, asked: int, rows: int, unit: str, file: Path) -> Plan:
    """Steps of a training with `asked` rows per step. unit: what a row is called, in the plural.

    NeMo-RL drops the last incomplete batch of each epoch; with fewer rows than one batch it would train nothing.
    Raises `ValueError` when there are fewer rows than devices (`no_rows`) or the devices cannot be shared out
    (`gpus`).
    """
    if rows < 1:
        raise ValueError(f"no_rows: {file} holds no training {unit}; import more feedback first")
    replicas = data_parallel(options, target)
    if rows < replicas:
        raise ValueError(
            f"no_rows: {file} holds {rows} {unit} for {replicas} data-parallel devices; import more feedback first, or "
            "train on fewer devices"
        )
    notes = []
    batch = min(asked, rows)
    batch = max(batch - batch % replicas, replicas)
    if batch < min(asked, rows) and asked <= rows:
        notes.append(f"batch of {asked} {unit} made {batch}, a multiple of {replicas} data-parallel devices")
    elif batch < asked:
        notes.append(f"batch shrunk from {asked} to {batch} {unit}: there are only {rows}")
    elif batch > asked:
        notes.append(f"batch grown from {asked} to {batch} {unit}: one for each data-parallel device")
    per_device = batch // replicas
    micro = max(size for size in range(1, min(options.micro_batch, per_device) + 1) if per_device % size == 0)
    if micro < options.micro_batch:
        notes.append(f"micro batch made {micro} instead of {options.micro_batch}, to divide {per_device} {unit}")
    per_epoch = rows // batch
    steps = min(per_epoch * options.epochs, options.max_steps or per_epoch * options.epochs)
    if left_out := rows % batch:
        notes.append(f"{left_out} of {rows} {unit} do not fill a batch in each epoch")
    return Plan(batch, micro, steps, notes)


def data_parallel(options: TrainingOptions, target: Target) -> int:
    """Copies of the model that share a batch. Raises `ValueError` (`gpus`) when the GPUs do not divide."""
    pipeline = options.pipeline_parallel if options.worker == "megatron" else 1
    per_copy = options.tensor_parallel * pipeline
    if target.gpus % per_copy:
        raise ValueError(
            f"gpus: {target.gpus} GPUs cannot hold copies of a model on {per_copy} each (tensor_parallel "
            f"{options.tensor_parallel} x pipeline_parallel {pipeline}); change one of the three"
        )
    return target.gpus // per_copy
