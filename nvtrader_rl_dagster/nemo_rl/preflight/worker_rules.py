"""Settings that exclude each other in NeMo-RL's workers, and what would leak or never start."""

from __future__ import annotations

from collections.abc import Iterator

from nvtrader_rl_dagster.nemo_rl.preflight.case import Case
from nvtrader_rl_dagster.nemo_rl.preflight.report import Finding, refuse

#: Where `env_vars` may stand: below the DTensor and Megatron settings of each model.
_MODELS = ("policy", "teacher", "value", "env.reward_model")
_SAME_BATCH_FROM_TP = 4


def check_worker(case: Case) -> Iterator[Finding]:
    """Rules of `nemo_rl/models/policy/` and of the set-up functions of both releases."""
    if not case.trains or case.embedded:
        return
    yield from _secrets(case)
    if not case.worker:
        yield refuse(
            "backend",
            "not exactly one of policy.dtensor_cfg.enabled and policy.megatron_cfg.enabled is true",
            "enable one of them and disable the other",
        )
        return
    yield from _batching(case)
    yield from _version_one(case)
    yield from _parallel(case)
    yield from _megatron(case)


def _secrets(case: Case) -> Iterator[Finding]:
    for model in _MODELS:
        for worker in ("dtensor_cfg", "megatron_cfg"):
            key = f"{model}.{worker}.env_vars"
            if case.settings.get(key):
                message = f"{key} is not empty: the whole environment, secrets included, would be saved in checkpoints"
                yield refuse("env_vars", message, f"set {key}: null, and set the variables in the environment instead")


def _batching(case: Case) -> Iterator[Finding]:
    packing, dynamic = (
        case.settings.get(f"policy.{name}.enabled") for name in ("sequence_packing", "dynamic_batching")
    )
    if packing and dynamic:
        yield refuse("packing", "sequence packing and dynamic batching exclude each other", "disable one of them")
    for name, on in (("sequence_packing", packing), ("dynamic_batching", dynamic)):
        if on and case.section == "dpo":
            yield refuse("packing", f"DPO takes no policy.{name}", f"set policy.{name}.enabled: false")
    if packing and case.section == "rm":
        yield refuse(
            "packing", "a reward model takes no sequence packing", "set policy.sequence_packing.enabled: false"
        )


def _version_one(case: Case) -> Iterator[Finding]:
    settings = case.settings
    if case.worker != "dtensor":
        return
    if settings.get("policy.dtensor_cfg.lora_cfg.enabled"):
        yield refuse("lora", "LoRA needs the v2 worker", "set policy.dtensor_cfg._v2: true")
    if settings.get("checkpointing.enabled") and settings.get("checkpointing.model_save_format") is not None:
        message = "checkpointing.model_save_format is set, and the v1 worker refuses it at the first save"
        yield refuse("save_format", message, "set checkpointing.model_save_format: null, or use the v2 worker")
    if settings.has("policy.scheduler") and settings.get("policy.scheduler") is None:
        yield refuse("scheduler", "policy.scheduler is null, which ends the v1 worker", "leave policy.scheduler out")


def _parallel(case: Case) -> Iterator[Finding]:
    settings = case.settings
    prefix, names = (
        ("policy.megatron_cfg", ("tensor_model_parallel_size", "context_parallel_size", "pipeline_model_parallel_size"))
        if case.worker == "megatron"
        else ("policy.dtensor_cfg", ("tensor_parallel_size", "context_parallel_size"))
    )
    sizes = {name: settings.number(f"{prefix}.{name}") or 1 for name in names}
    model, world = 1, policy_gpus(case)
    for size in sizes.values():
        model *= size
    said = " x ".join(f"{name} {size}" for name, size in sizes.items())
    if world is None:
        return
    if world < 1:
        message = "no GPU is left for the policy: the reward model or the generation takes all"
        yield refuse("world_size", message, "raise cluster.gpus_per_node")
        return
    if world % model:
        message = f"{world} GPUs of the policy cannot be divided into {said}"
        yield refuse("world_size", message, "change cluster.gpus_per_node or the parallel sizes")
        return
    micro, batch = settings.number("policy.train_micro_batch_size"), settings.number("policy.train_global_batch_size")
    grouped = any(settings.get(f"policy.{name}.enabled") for name in ("sequence_packing", "dynamic_batching"))
    step = world // model * (1 if grouped else micro or 1)
    if batch and step and batch % step:
        message = f"policy.train_global_batch_size {batch} is no multiple of {step} (data parallel x micro batch)"
        yield refuse("batch_size", message, "change one of them")
    tensor, logprobs = sizes[names[0]], settings.number("policy.logprob_batch_size")
    lenient = case.environment.get("NRL_IGNORE_TP_ACCURACY_CHECK") or settings.get("loss_fn.force_on_policy_ratio")
    if tensor >= _SAME_BATCH_FROM_TP and logprobs is not None and logprobs != micro and not lenient:
        message = (
            f"from {_SAME_BATCH_FROM_TP} tensor-parallel GPUs on, policy.logprob_batch_size must equal the micro batch"
        )
        yield refuse("tensor_parallel", message, f"set policy.logprob_batch_size: {micro}")
    if sizes["context_parallel_size"] > 1 and case.worker == "dtensor":
        if settings.get("policy.sequence_packing.enabled"):
            yield refuse("packing", "context parallel takes no sequence packing", "disable one of them")
        if tensor > 1 and settings.get("policy.dtensor_cfg.sequence_parallel"):
            yield refuse("parallel", "context parallel takes no sequence parallel", "disable one of them")


def _megatron(case: Case) -> Iterator[Finding]:
    if case.worker == "megatron" and "TORCH_CUDA_ARCH_LIST" not in case.environment:
        remedy = "set TORCH_CUDA_ARCH_LIST to the GPU's compute capability, 12.1 on a GB10"
        yield refuse("cuda_arch_list", "the Megatron worker refuses to start without TORCH_CUDA_ARCH_LIST", remedy)


def policy_gpus(case: Case) -> int | None:
    """GPUs that train the policy; None when the cluster is not a matter of two numbers."""
    settings = case.settings
    per_node, nodes = settings.number("cluster.gpus_per_node"), settings.number("cluster.num_nodes")
    if per_node is None or nodes is None:
        return None
    blocks = [settings.section("data.train"), settings.section("data.default")]
    reward = "env.reward_model.resources" if any(x.get("env_name") == "reward_model" for x in blocks) else None
    shared = settings.get("policy.generation.colocated.enabled", True) or not case.rl
    if nodes > 1 and not shared:
        return None
    if reward and nodes > 1:
        nodes -= settings.number(f"{reward}.num_nodes") or 0
    elif reward:
        per_node -= settings.number(f"{reward}.gpus_per_node") or 0
    if not shared:
        per_node -= settings.number("policy.generation.colocated.resources.gpus_per_node") or 0
    return per_node * nodes
