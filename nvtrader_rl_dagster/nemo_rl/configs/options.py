"""What a user changes about any training. Everything else of the YAML follows from it, the data and the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

Worker = Literal["dtensor", "dtensor_v2", "megatron"]


class ConfigOptions(BaseModel):
    """What the options of every algorithm have."""

    #: Dotted keys of the YAML that an option decides: an override of such a key sets the option.
    option_keys: ClassVar[Mapping[str, str]] = {}

    overrides: dict[str, Any] = Field(
        default_factory=dict,
        description="Any other key of NeMo-RL's YAML by its dotted name, for example "
        "{'policy.max_grad_norm': 0.5}; unknown keys are refused.",
    )


class TrainingOptions(ConfigOptions):
    """Settings that every training has. Flat, because Dagster shows each field as one line of its launchpad."""

    option_keys: ClassVar[Mapping[str, str]] = {
        "policy.model_name": "base_model",
        "policy.max_total_sequence_length": "max_sequence_tokens",
        "policy.optimizer.kwargs.lr": "learning_rate",
        "policy.megatron_cfg.optimizer.lr": "learning_rate",
        "policy.dtensor_cfg.tensor_parallel_size": "tensor_parallel",
        "policy.megatron_cfg.tensor_model_parallel_size": "tensor_parallel",
        "policy.megatron_cfg.pipeline_model_parallel_size": "pipeline_parallel",
        "checkpointing.save_period": "save_period",
        "checkpointing.keep_top_k": "keep_checkpoints",
        "logger.tensorboard_enabled": "tensorboard",
    }

    base_model: str = Field(
        default="auto",
        description=(
            "Policy and reference at the start: a local Hugging Face folder, 'builtin:smollm2', "
            "'builtin:tiny', or 'auto' (NVTRADER_RL_BASE_MODEL if set, else smollm2 when its package is installed, "
            "else tiny)."
        ),
    )
    epochs: int = Field(default=1, ge=1, description="Passes over the training rows.")
    max_steps: int | None = Field(default=None, ge=1, description="Optimizer steps at most; empty means all epochs.")
    learning_rate: float = Field(default=5e-6, gt=0, description="Peak AdamW learning rate, reached by linear warm-up.")
    max_sequence_tokens: int = Field(default=1024, ge=16, description="Rows with more tokens are not trained on.")
    micro_batch: int = Field(
        default=1,
        ge=1,
        description="Rows that one device computes at once; more is faster and needs more memory. Shrinks to a divisor "
        "of the batch.",
    )
    save_period: int = Field(
        default=50, ge=1, description="Optimizer steps between checkpoints; the last step is always saved."
    )
    keep_checkpoints: int = Field(default=2, ge=1, description="Checkpoints kept: the best so many, and the newest.")
    validation_period: int = Field(
        default=0, ge=0, description="Optimizer steps between validations; 0 validates where a checkpoint is saved."
    )
    seed: int = Field(default=42, description="Seed of the data order and of everything random.")
    worker: Worker = Field(
        default="dtensor",
        description="NeMo-RL's training worker: 'dtensor' (PyTorch), 'dtensor_v2' (Automodel; LoRA needs it), or "
        "'megatron' (Megatron-Core, for tensor and pipeline parallelism over several GPUs).",
    )
    tensor_parallel: int = Field(default=1, ge=1, description="GPUs over which each layer is split.")
    pipeline_parallel: int = Field(
        default=1, ge=1, description="GPUs over which the layers are distributed; needs the worker 'megatron'."
    )
    activation_checkpointing: bool = Field(
        default=False, description="Compute activations again in the backward pass: slower, less memory."
    )
    lora_rank: int = Field(
        default=0, ge=0, description="Rank of the LoRA adapter that is trained; 0 trains all weights."
    )
    lora_alpha: int = Field(default=32, ge=1, description="LoRA alpha: the adapter's output counts alpha / rank.")
    chat_template: str = Field(
        default="",
        description="Jinja chat template, as text or the path of a .jinja file; empty means the model's own.",
    )
    tensorboard: bool = Field(default=False, description="Write TensorBoard files into the run's log folder.")
