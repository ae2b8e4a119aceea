"""The sections that NeMo-RL's trainings share: policy, checkpointing, logger, cluster.

Keys: the reference YAMLs of v0.6.0 and v0.7.0 and what their workers read beyond the types.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.nemo_rl.configs.megatron import megatron_section
from nvtrader_rl_dagster.nemo_rl.configs.options import TrainingOptions
from nvtrader_rl_dagster.nemo_rl.configs.target import Target


def policy_section(
    options: TrainingOptions,
    target: Target,
    *,
    model: str,
    batch: int,
    micro_batch: int,
    steps: int,
    weight_decay: float = 0.0,
    trains: bool = True,
) -> dict[str, Any]:
    """A policy without generation, for the worker of the options. trains: False leaves out what only training reads.

    steps: optimizer steps of the whole run, which the learning-rate schedule spans.
    """
    _check_worker(options)
    megatron = options.worker == "megatron"
    policy: dict[str, Any] = {
        "model_name": model,
        "tokenizer": tokenizer_section(model, options.chat_template),
        "train_global_batch_size": batch,
        "train_micro_batch_size": micro_batch,
        "max_total_sequence_length": options.max_sequence_tokens,
        "precision": target.precision,
        "offload_optimizer_for_logprob": False,
        "make_sequence_length_divisible_by": options.tensor_parallel,
        "max_grad_norm": 1.0,
        "dtensor_cfg": {"enabled": False} if megatron else dtensor_section(options, target),
        "megatron_cfg": (
            megatron_section(options, target, steps=steps, weight_decay=weight_decay)
            if megatron
            else {"enabled": False}
        ),
        "dynamic_batching": {"enabled": False},
        "sequence_packing": {"enabled": False},
    }
    if megatron:
        policy["optimizer"] = None
    elif trains:
        policy["optimizer"] = optimizer_section(options.learning_rate, weight_decay)
        policy["scheduler"] = scheduler_section(steps)
    return policy


def _check_worker(options: TrainingOptions) -> None:
    if options.lora_rank and options.worker == "dtensor":
        raise ValueError("lora: the worker 'dtensor' has no LoRA; set the option worker to dtensor_v2 or megatron")
    if options.pipeline_parallel > 1 and options.worker != "megatron":
        raise ValueError("pipeline: pipeline_parallel above 1 needs the option worker set to megatron")


def tokenizer_section(model: str, chat_template: str = "") -> dict[str, Any]:
    """The model's own tokenizer. Without `chat_template` NeMo-RL takes the template of the model."""
    section: dict[str, Any] = {"name": model, "chat_template_kwargs": None}
    if chat_template:
        section["chat_template"] = chat_template
    return section


def dtensor_section(options: TrainingOptions, target: Target) -> dict[str, Any]:
    """`dtensor_cfg` of the first or the second worker; unified memory has nothing to offload to."""
    section: dict[str, Any] = {
        "enabled": True,
        "cpu_offload": False,
        "sequence_parallel": False,
        "activation_checkpointing": options.activation_checkpointing,
        "tensor_parallel_size": options.tensor_parallel,
        "context_parallel_size": 1,
        "custom_parallel_plan": None,
        "clear_cache_every_n_steps": None,
        # A mapping here would write the whole environment, secrets included, into checkpoints.
        "env_vars": None,
    }
    if options.worker == "dtensor_v2":
        section |= {"_v2": True, "automodel_kwargs": {}, "lora_cfg": lora_section(options)}
        if target.version == "0.7.0":
            section["dp_replicate_size"] = 1
    elif options.lora_rank:
        raise ValueError("lora: the worker dtensor has no LoRA; set the option worker to dtensor_v2, or lora_rank to 0")
    return section


def lora_section(options: TrainingOptions) -> dict[str, Any]:
    """`lora_cfg` of the second DTensor worker: an adapter on every linear layer."""
    if not options.lora_rank:
        return {"enabled": False}
    return {
        "enabled": True,
        "target_modules": [],
        "exclude_modules": [],
        "match_all_linear": True,
        "dim": options.lora_rank,
        "alpha": options.lora_alpha,
        "dropout": 0.0,
        "dropout_position": "post",
        "lora_A_init": "xavier",
        # The fused kernels exist for one device per layer only.
        "use_triton": options.tensor_parallel == 1,
    }


def optimizer_section(learning_rate: float, weight_decay: float) -> dict[str, Any]:
    """AdamW. DTensor parameters need the plain loop: neither foreach nor fused."""
    return {
        "name": "torch.optim.AdamW",
        "kwargs": {
            "lr": learning_rate,
            "weight_decay": weight_decay,
            "betas": [0.9, 0.98],
            "eps": 1e-8,
            "foreach": False,
            "fused": False,
        },
    }


def warmup_steps(steps: int) -> int:
    return max(1, steps // 10)


def scheduler_section(steps: int) -> list[dict[str, Any]]:
    """Linear warm-up over a tenth of the steps, then linear decay to a tenth of the peak."""
    warmup = warmup_steps(steps)
    linear = "torch.optim.lr_scheduler.LinearLR"
    return [
        {"name": linear, "kwargs": {"start_factor": 0.1, "end_factor": 1.0, "total_iters": warmup}},
        {"name": linear, "kwargs": {"start_factor": 1.0, "end_factor": 0.1, "total_iters": max(1, steps - warmup)}},
        {"milestones": [warmup]},
    ]


def checkpointing_section(
    options: TrainingOptions,
    checkpoints: Path,
    *,
    steps: int,
    save_period: int,
    metric_name: str | None,
    higher_is_better: bool,
) -> dict[str, Any]:
    """`checkpointing`.

    save_period: `Validation.save_period`. metric_name: NeMo-RL's full name (`Algorithm.tracked`), None when nothing is
    validated.
    """
    section: dict[str, Any] = {
        "enabled": True,
        "checkpoint_dir": str(checkpoints),
        "metric_name": metric_name,
        "higher_is_better": higher_is_better,
        "keep_top_k": options.keep_checkpoints,
        "save_period": save_period,
        "checkpoint_must_save_by": None,
        # Optimizer state only serves a resume, and there is nothing to resume from before the end.
        "save_optimizer": steps > save_period,
        # The second DTensor worker alone has a choice; the others refuse any format.
        "model_save_format": None,
    }
    if options.worker == "dtensor_v2":
        section |= {"model_save_format": "safetensors", "save_consolidated": True}
    return section


def logger_section(options: TrainingOptions, logs: Path) -> dict[str, Any]:
    """`logger`: nothing leaves the machine, and GB10's driver has no counters for the GPU monitor."""
    return {
        "log_dir": str(logs),
        "wandb_enabled": False,
        "tensorboard_enabled": options.tensorboard,
        "mlflow_enabled": False,
        "swanlab_enabled": False,
        "monitor_gpus": False,
        "num_val_samples_to_print": 0,
        "wandb": {},
        "tensorboard": {},
        "gpu_monitoring": {"collection_interval": 10, "flush_interval": 10},
    }


def cluster_section(target: Target) -> dict[str, Any]:
    """`cluster`; 0.7.0 can align nodes with NVLink domains, which is off."""
    section: dict[str, Any] = {"gpus_per_node": target.gpus_per_node, "num_nodes": target.num_nodes}
    if target.version == "0.7.0":
        section["segment_size"] = None
    return section
