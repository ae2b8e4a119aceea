"""`megatron_cfg`: the Megatron-Core worker, for tensor- and pipeline-parallel runs."""

from __future__ import annotations

from typing import Any

from nvtrader_rl_dagster.nemo_rl.configs.options import TrainingOptions
from nvtrader_rl_dagster.nemo_rl.configs.target import Target


def megatron_section(
    options: TrainingOptions,
    target: Target,
    *,
    steps: int,
    weight_decay: float = 0.0,
    rl: bool = False,
) -> dict[str, Any]:
    """`policy.megatron_cfg`, enabled. rl: the values of the GRPO references instead of those of SFT and DPO."""
    section: dict[str, Any] = {
        "enabled": True,
        "env_vars": None,
        "force_reconvert_from_hf": False,
        "empty_unused_memory_level": 1,
        "activation_checkpointing": options.activation_checkpointing,
        "tensor_model_parallel_size": options.tensor_parallel,
        "pipeline_model_parallel_size": options.pipeline_parallel,
        "context_parallel_size": 1,
        "expert_tensor_parallel_size": 1,
        "expert_model_parallel_size": 1,
        "num_layers_in_first_pipeline_stage": None,
        "num_layers_in_last_pipeline_stage": None,
        "pipeline_dtype": target.precision,
        "sequence_parallel": options.tensor_parallel > 1,
        "freeze_moe_router": rl,
        "moe_router_dtype": "fp64",
        "moe_router_load_balancing_type": "none" if rl else "aux_loss",
        "moe_router_bias_update_rate": 0.0 if rl else 1e-3,
        "moe_permute_fusion": False,
        "moe_per_layer_logging": False,
        "moe_enable_deepep": False,
        "moe_token_dispatcher_type": "alltoall",
        "moe_shared_expert_overlap": False,
        "apply_rope_fusion": True,
        "bias_activation_fusion": True,
        "defer_fp32_logits": False,
        "gradient_accumulation_fusion": False,
        "use_linear_ce_fusion_loss": False,
        "linear_ce_fusion_chunk_size": 256,
        "peft": _peft(options),
        "optimizer": {
            "optimizer": "adam",
            "lr": options.learning_rate,
            "min_lr": options.learning_rate / 10,
            "weight_decay": weight_decay,
            "bf16": target.precision == "bfloat16",
            "fp16": target.precision == "float16",
            "params_dtype": "float32",
            "adam_beta1": 0.9,
            "adam_beta2": 0.98,
            "adam_eps": 1e-8,
            "sgd_momentum": 0.9,
            "use_distributed_optimizer": True,
            "use_precision_aware_optimizer": True,
            "clip_grad": 1.0,
            "optimizer_cpu_offload": False,
            "optimizer_offload_fraction": 0.0,
        },
        "scheduler": {
            "start_weight_decay": weight_decay,
            "end_weight_decay": weight_decay,
            "weight_decay_incr_style": "constant",
            "lr_decay_style": "linear",
            "lr_decay_iters": steps,
            # Warm-up must end before the decay does; a single step has none.
            "lr_warmup_iters": min(max(1, steps // 10), steps - 1),
            "lr_warmup_init": options.learning_rate / 10,
        },
        "distributed_data_parallel_config": {
            "grad_reduce_in_fp32": False,
            "overlap_grad_reduce": True,
            "overlap_param_gather": True,
            "use_custom_fsdp": False,
            "data_parallel_sharding_strategy": "optim_grads_params",
        },
        "fp8_cfg": {"enabled": False, "fp8": "e4m3", "fp8_recipe": "blockwise", "fp8_param": False},
    }
    if target.version == "0.7.0":
        section |= {
            "recompute_granularity": "full",
            "recompute_modules": None,
            "use_fused_weighted_squared_relu": False,
        }
    return section


def _peft(options: TrainingOptions) -> dict[str, Any]:
    if not options.lora_rank:
        return {"enabled": False}
    return {
        "enabled": True,
        "target_modules": [],
        "exclude_modules": [],
        "dim": options.lora_rank,
        "alpha": options.lora_alpha,
        "dropout": 0.0,
        "dropout_position": "post",
        "lora_A_init_method": "xavier",
        "lora_B_init_method": "zero",
        "a2a_experimental": False,
        "lora_dtype": None,
    }
