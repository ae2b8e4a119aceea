"""Disk and memory against what the next training will need."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from nvtrader_rl_dagster.doctor.finding import Finding, error, existing_parent, gigabytes, ok, warning
from nvtrader_rl_dagster.doctor.gpu import GpuError, gpus
from nvtrader_rl_dagster.doctor.model_size import base_model, measured_checkpoint
from nvtrader_rl_dagster.doctor.trainers import chosen_trainer
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.preflight.sizes import checkpoint_bytes, state_bytes

#: The two best, the latest, and the one being written before an older one is removed.
_CHECKPOINTS = 4
#: Ray refuses to store objects on a disk that is fuller (RAY_local_fs_capacity_threshold).
_RAY_FULL = 0.95
_RAY_FREE = 2e9


def check_disk(home: Home) -> Iterator[Finding]:
    """Room for the checkpoints of the next training."""
    free = shutil.disk_usage(existing_parent(home.runs)).free
    model = base_model(home)
    measured = measured_checkpoint(home)
    if model.parameters:
        size = checkpoint_bytes(model.parameters, optimizer=True, consolidated=True)
        how = f"predicted from the {model.parameters / 1e6:,.0f} M parameters of {model.name}, {model.source}"
    elif measured:
        checkpoint, run, size = measured
        how = f"the size of {checkpoint.path.name} of run {run.run_id}"
    else:
        yield warning(
            "disk",
            f"{gigabytes(free)} free; the size of {model.name} ({model.source}) is unknown",
            "keep 64 bytes for each of its parameters free",
        )
        return
    need = size * _CHECKPOINTS
    message = f"{gigabytes(free)} free; a training needs up to {gigabytes(need)}: {_CHECKPOINTS} checkpoints of " + (
        f"{gigabytes(size)}, {how}"
    )
    remedy = f"free space on {existing_parent(home.runs)}: nvtrader-rl prune"
    if free < need:
        yield error("disk", message, remedy)
    elif free < 2 * need:
        yield warning("disk", message, remedy)
    else:
        yield ok("disk", message)


def check_memory(home: Home) -> Iterator[Finding]:
    """Room for the weights, the reference and the optimizer; activations come on top."""
    import psutil

    model = base_model(home)
    if model.parameters is None:
        yield warning(
            "memory",
            f"the size of {model.name} ({model.source}) is unknown",
            "20 bytes for each of its parameters must be available",
        )
        return
    need = sum(state_bytes(model.parameters, reference=True).values())
    where, total, available = "memory", psutil.virtual_memory().total, psutil.virtual_memory().available
    trainer = chosen_trainer()
    if trainer is not None and trainer.name == "nemo_rl":
        where, total, available = _gpu_memory() or (where, total, available)
    message = (
        f"{gigabytes(available)} of {gigabytes(total)} {where} available; {model.name} ({model.source}) needs "
        f"{gigabytes(need)} for weights, reference, gradients and AdamW, and activations on top"
    )
    if need > total:
        yield error("memory", message, "train a smaller base model")
    elif need > available:
        yield warning("memory", message, "end other programs before the next training")
    else:
        yield ok("memory", message)


def check_ray_folder(home: Home) -> Iterator[Finding]:
    """Ray's sockets, logs and spilled objects go into the folder for temporary files."""
    folder = Path(tempfile.gettempdir())
    usage = shutil.disk_usage(folder)
    # As `df` counts: blocks that only root may use belong to neither.
    full = usage.used / (usage.used + usage.free)
    message = f"{folder} has {gigabytes(usage.free)} free ({full:.0%} full)"
    if full > _RAY_FULL or usage.free < _RAY_FREE:
        yield warning("Ray's folder", message, f"free space in {folder}, or set TMPDIR: Ray stops at {_RAY_FULL:.0%}")
    else:
        yield ok("Ray's folder", message)


def _gpu_memory() -> tuple[str, int, int] | None:
    """Memory of the first GPU: what it is called, bytes in total and free; None where it is the CPU's memory."""
    try:
        found = gpus()
    except GpuError:
        return None
    if not found or found[0].memory is None:
        return None
    return f"GPU memory ({found[0].name})", found[0].memory, found[0].memory - (found[0].used or 0)
