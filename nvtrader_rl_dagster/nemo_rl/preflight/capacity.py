"""Predicted memory and disk of a run against what is there: refused only when it cannot be, warned of before."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nvtrader_rl_dagster.doctor.finding import existing_parent, gigabytes
from nvtrader_rl_dagster.doctor.gpu import GpuError, gpus
from nvtrader_rl_dagster.nemo_rl.model_files import count_parameters, model_folder, shape_of
from nvtrader_rl_dagster.nemo_rl.preflight.case import Case
from nvtrader_rl_dagster.nemo_rl.preflight.model import model_keys
from nvtrader_rl_dagster.nemo_rl.preflight.report import Finding, Prediction, ok, refuse, warn
from nvtrader_rl_dagster.nemo_rl.preflight.sizes import activation_bytes, checkpoint_bytes, state_bytes

#: Console lines of one step, as recorded; and a sample of a rollout file: token ids, masks and log-probabilities.
_LOG_BYTES_PER_STEP, _SAMPLE_BYTES_PER_TOKEN = 4096, 60
#: The share of unified memory for generation from which training has little left.
_MUCH_FOR_GENERATION = 0.6


@dataclass(frozen=True)
class Device:
    """where: what people read. unified: GPU and CPU share it, or there is no GPU."""

    where: str
    total: int
    available: int
    unified: bool
    integrated_gpu: bool


def device(case: Case) -> Device:
    """The memory that a run is measured against: one GPU's, or the machine's where there is no other."""
    import psutil

    memory = psutil.virtual_memory()
    if not case.embedded:
        try:
            found = gpus()
        except GpuError:
            found = []
        if found and found[0].memory is not None:
            gpu = found[0]
            assert gpu.memory is not None
            return Device(f"GPU memory ({gpu.name})", gpu.memory, gpu.memory - (gpu.used or 0), False, False)
        if found:
            return Device(f"unified memory ({found[0].name})", memory.total, memory.available, True, True)
    return Device("memory", memory.total, memory.available, True, False)


def predict_memory(case: Case, on: Device) -> Prediction | None:
    """Bytes on one device, by part; None when the size of a model is unknown.

    The states are sharded over all GPUs. Training and generation take turns: of activations and vLLM's share only
    the larger counts. On unified memory the reference, which is kept on the CPU, counts as well; what is offloaded to
    a CPU with memory of its own does not.
    """
    sizes = {key: _parameters(case, name) for key, name in model_keys(case).items()}
    policy = sizes.get("policy.model_name")
    if not case.trains or policy is None or None in sizes.values():
        return None
    settings = case.settings
    lora = bool(settings.get("policy.dtensor_cfg.lora_cfg.enabled") or settings.get("policy.megatron_cfg.peft.enabled"))
    world = (settings.number("cluster.gpus_per_node") or 1) * (settings.number("cluster.num_nodes") or 1)
    megatron = case.worker == "megatron"
    parts = state_bytes(policy, reference=_has_reference(case) and on.unified, lora=lora, megatron=megatron)
    for key, parameters in sizes.items():
        if key != "policy.model_name" and parameters is not None:
            trained = key == "value.model_name"
            parts[key.removesuffix(".model_name")] = sum(
                state_bytes(parameters, reference=False, frozen=not trained).values()
            )
    offloaded = settings.get("policy.dtensor_cfg.cpu_offload") and not on.unified
    parts = {} if offloaded else {name: size // world for name, size in parts.items()}
    working = {"activations": _activations(case), "generation": _generation(case, on)}
    name = max(working, key=lambda key: working[key])
    if working[name]:
        parts[name] = working[name]
    return Prediction(on.where, parts, on.total, on.available)


def check_memory(case: Case, on: Device, prediction: Prediction | None) -> Iterator[Finding]:
    """A refusal when even weights and optimizer are more than there is at all."""
    if not case.trains:
        return
    if prediction is None:
        yield warn("memory_unknown", "the size of the model is unknown, so is its memory", "watch the first steps")
        return
    said = ", ".join(f"{name} {gigabytes(size)}" for name, size in prediction.parts.items())
    states = sum(size for name, size in prediction.parts.items() if name not in ("activations", "generation"))
    message = f"about {gigabytes(prediction.need)} of {on.where} ({said})"
    remedy = "train a smaller model, use LoRA, or lower the micro batch and the sequence length"
    if states > on.total:
        yield refuse("memory", f"{message}; there are {gigabytes(on.total)}", remedy)
    elif prediction.need > on.available:
        yield warn("memory", f"{message}; {gigabytes(on.available)} of {gigabytes(on.total)} are available", remedy)
    else:
        yield ok("memory", f"{message}; {gigabytes(on.available)} are available")
    share = case.settings.get("policy.generation.vllm_cfg.gpu_memory_utilization")
    if case.rl and on.integrated_gpu:
        said = "NVML reports no free memory for this GPU; the bridge's driver reads the machine's memory instead"
        yield ok("weight_refit", said)
    if case.rl and on.integrated_gpu and isinstance(share, float) and share > _MUCH_FOR_GENERATION:
        key = "policy.generation.vllm_cfg.gpu_memory_utilization"
        yield warn("generation_memory", f"{key} {share} counts the machine's memory as well here", f"set {key} to 0.4")


def predict_disk(case: Case, steps: int | None) -> Prediction | None:
    """Bytes below the checkpoint folder; None when the size of the model is unknown or nothing is saved."""
    name = model_keys(case).get("policy.model_name")
    parameters = _parameters(case, name) if name else None
    if (
        case.checkpoints is None
        or not case.trains
        or parameters is None
        or not case.settings.get("checkpointing.enabled")
    ):
        return None
    settings = case.settings
    optimizer = bool(settings.get("checkpointing.save_optimizer"))
    consolidated = case.embedded or bool(settings.get("checkpointing.save_consolidated"))
    lora = bool(settings.get("policy.dtensor_cfg.lora_cfg.enabled"))
    one = checkpoint_bytes(parameters, optimizer=optimizer, consolidated=consolidated, lora=lora)
    period = settings.number("checkpointing.save_period") or 1
    saves = math.ceil(steps / period) if steps else 1
    keep = settings.number("checkpointing.keep_top_k")
    # The best, the latest, and the one being written before an older one is removed.
    kept = saves if keep is None else min(saves, keep + 2)
    parts = {"one checkpoint": one, f"{kept - 1} more checkpoints": one * (kept - 1)} if kept > 1 else {
        "one checkpoint": one
    }  # fmt: skip
    if steps:
        parts["logs"] = steps * (_LOG_BYTES_PER_STEP + _samples(case))
    folder = existing_parent(case.checkpoints.resolve())
    usage = shutil.disk_usage(folder)
    return Prediction(str(folder), parts, usage.total, usage.free)


def check_disk(case: Case, prediction: Prediction | None) -> Iterator[Finding]:
    """A refusal when not even one checkpoint fits."""
    if prediction is None:
        return
    said = ", ".join(f"{name} {gigabytes(size)}" for name, size in prediction.parts.items())
    message = (
        f"about {gigabytes(prediction.need)} below {prediction.where} ({said}); {gigabytes(prediction.available)} free"
    )
    remedy = "free space (nvtrader-rl prune), lower checkpointing.keep_top_k, or use another checkpoint_dir"
    if prediction.parts["one checkpoint"] > prediction.available:
        yield refuse("disk", message, remedy)
    elif prediction.need > prediction.available:
        yield warn("disk", message, remedy)
    else:
        yield ok("disk", message)


def _parameters(case: Case, name: str) -> int | None:
    folder = _folder(case, name)
    return count_parameters(str(folder)) if folder is not None else count_parameters(name)


def _folder(case: Case, name: str) -> Path | None:
    return model_folder(str(case.path(name)), case.environment) or model_folder(name, case.environment)


def _has_reference(case: Case) -> bool:
    if case.section == "dpo":
        return True
    penalty = case.settings.get("loss_fn.reference_policy_kl_penalty")
    return case.section in ("grpo", "ppo") and bool(penalty)


def _activations(case: Case) -> int:
    settings = case.settings
    name = settings.get("policy.model_name")
    folder = _folder(case, name)
    shape = shape_of(folder) if folder else None
    tokens, micro = (settings.number(f"policy.{k}") for k in ("max_total_sequence_length", "train_micro_batch_size"))
    if shape is None or not tokens or not micro:
        return 0
    checkpointing = any(
        settings.get(f"policy.{worker}.activation_checkpointing") for worker in ("dtensor_cfg", "megatron_cfg")
    )
    half = settings.get("policy.precision") in ("bfloat16", "float16")
    sequences = micro * (2 if case.preference else 1)
    return activation_bytes(shape, sequences, tokens, half=half, checkpointing=checkpointing)


def _generation(case: Case, on: Device) -> int:
    share = case.settings.get("policy.generation.vllm_cfg.gpu_memory_utilization") if case.rl else None
    return int(share * on.total) if isinstance(share, (int, float)) else 0


def _samples(case: Case) -> int:
    """Bytes of one step in the rollout file."""
    if not case.rl:
        return 0
    settings, section = case.settings, case.section
    numbers = (
        settings.number(f"{section}.num_prompts_per_step"),
        settings.number(f"{section}.num_generations_per_prompt") or 1,
        settings.number("policy.max_total_sequence_length"),
    )
    return math.prod(number or 0 for number in numbers) * _SAMPLE_BYTES_PER_TOKEN
