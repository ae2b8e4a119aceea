"""Keys that NeMo-RL reads without a default: one that is missing ends the run when it is first read."""

from __future__ import annotations

from collections.abc import Iterator

from nvtrader_rl_dagster.nemo_rl.preflight.case import Case
from nvtrader_rl_dagster.nemo_rl.preflight.report import Finding, refuse, warn

#: Required by the types of both releases. 0.7.0 has defaults for the algorithm sections of SFT and DPO.
_TRAINING = (
    "policy.model_name",
    "policy.train_global_batch_size",
    "policy.train_micro_batch_size",
    "policy.precision",
    "policy.make_sequence_length_divisible_by",
    "data.train",
    "data.max_input_seq_length",
    "data.shuffle",
    "checkpointing.enabled",
    "checkpointing.checkpoint_dir",
    "checkpointing.metric_name",
    "checkpointing.higher_is_better",
    "checkpointing.save_period",
    "logger.log_dir",
    "logger.wandb_enabled",
    "logger.tensorboard_enabled",
    "logger.mlflow_enabled",
    "logger.swanlab_enabled",
    "logger.monitor_gpus",
    "cluster.gpus_per_node",
    "cluster.num_nodes",
)
#: Read without a default all the same: seen by tracing whole runs of v0.6.0.
_TRACED = (
    "policy.tokenizer.name",
    "policy.dynamic_batching.enabled",
    "policy.sequence_packing.enabled",
    "checkpointing.keep_top_k",
    "checkpointing.save_optimizer",
    "checkpointing.checkpoint_must_save_by",
)
_DTENSOR = (
    "policy.offload_optimizer_for_logprob",
    "policy.max_grad_norm",
    "policy.optimizer.name",
    "policy.optimizer.kwargs",
    "policy.dtensor_cfg.custom_parallel_plan",
    "policy.dtensor_cfg.tensor_parallel_size",
    "policy.dtensor_cfg.context_parallel_size",
)
_SECTION = ("max_num_epochs", "max_num_steps", "val_period", "val_at_start", "val_at_end", "seed")
_PAIRS = ("val_batches", "val_global_batch_size", "val_micro_batch_size")
_OF_ALGORITHM: dict[str, tuple[str, ...]] = {
    "ppo": ("ppo.num_prompts_per_step", "value", "value_loss_fn", "loss_fn"),
    "grpo": ("grpo.num_prompts_per_step", "grpo.num_generations_per_prompt", "loss_fn"),
    "distillation": ("distillation.num_prompts_per_step", "teacher.model_name", "loss_fn"),
    "eval": ("eval", "generation.model_name", "tokenizer.name", "data.prompt_file", "data.system_prompt_file"),
}
_TRACED_OF_ALGORITHM = {
    "sft": ("policy.megatron_cfg.enabled", "data.add_bos", "data.add_eos", "data.add_generation_prompt"),
    "dpo": ("policy.megatron_cfg.enabled", "dpo.reference_policy_kl_penalty"),
    "rm": ("policy.reward_model_cfg.enabled", "policy.reward_model_cfg.reward_model_type"),
    "grpo": (
        "grpo.batch_multiplier",
        "grpo.overlong_filtering",
        "data.use_multiple_dataloader",
        "policy.draft.enabled",
        "policy.logprob_batch_size",
        "policy.generation.vllm_kwargs",
        "policy.generation.colocated.enabled",
    ),
    "distillation": ("policy.generation.vllm_kwargs", "policy.generation.colocated.enabled"),
}


def check_required(case: Case) -> Iterator[Finding]:
    """One finding that names every missing key. The embedded trainer names its own.

    A key that is only known from the traces of 0.6.0 may have a default in 0.7.0: there it is a warning.
    """
    if case.embedded:
        return
    section = case.section
    remedy = f"set them; `nvtrader-rl config {case.algorithm.name}` prints a complete configuration"
    typed, traced = list(_OF_ALGORITHM.get(section, ())), list(_TRACED_OF_ALGORITHM.get(section, ()))
    if case.trains:
        own = [*_SECTION, *(("val_batch_size", "max_val_samples") if case.rl else _PAIRS)]
        defaults = case.version == "0.7.0" and section in ("sft", "dpo")
        typed += [*_TRAINING, *([] if defaults else [f"{section}.{key}" for key in own])]
        traced += [*_TRACED, *(_DTENSOR if case.worker.startswith("dtensor") else ())]
        traced += [] if section == "distillation" else ["data.num_workers"]
        if case.settings.get("logger.tensorboard_enabled"):
            traced.append("logger.tensorboard")
    for keys, surely in ((typed, True), (traced, case.version == "0.6.0")):
        missing = sorted({key for key in keys if not case.settings.has(key)})
        if missing and surely:
            message = f"missing keys: {', '.join(missing)}; the run would end when it first reads one"
            yield refuse("missing_keys", message, remedy)
        elif missing:
            yield warn("missing_keys", f"missing keys: {', '.join(missing)}; the run may need them", remedy)
