"""Rows, a complete run YAML, and the trainer as a process."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson

CONFIG: dict[str, Any] = {
    "dpo": {
        "max_num_epochs": 3,
        "max_num_steps": 6,
        "val_period": 2,
        "val_batches": 8,
        "val_global_batch_size": 4,
        "val_micro_batch_size": 1,
        "val_at_start": True,
        "val_at_end": True,
        "seed": 42,
        "reference_policy_kl_penalty": 0.1,
        "preference_average_log_probs": False,
        "sft_average_log_probs": False,
        "preference_loss_weight": 1,
        "sft_loss_weight": 0,
    },
    "policy": {
        "model_name": "builtin:tiny",
        "tokenizer": {"name": "builtin:tiny"},
        "train_global_batch_size": 2,
        "train_micro_batch_size": 1,
        "max_total_sequence_length": 256,
        "precision": "float32",
        "max_grad_norm": 1.0,
        "optimizer": {
            "name": "torch.optim.AdamW",
            "kwargs": {"lr": 1e-3, "weight_decay": 0.1, "betas": [0.9, 0.98]},
        },
        "scheduler": [
            {"name": "torch.optim.lr_scheduler.LinearLR", "kwargs": {"start_factor": 0.1, "total_iters": 4}},
            {
                "name": "torch.optim.lr_scheduler.ConstantLR",
                "kwargs": {"factor": 1.0, "total_iters": 10000000000},
            },
            {"milestones": [4]},
        ],
        "local_trainer": {"threads": 1},
    },
    "data": {
        "max_input_seq_length": 256,
        "shuffle": True,
        "num_workers": 0,
        "train": {"dataset_name": "PreferenceDataset", "data_path": "train.jsonl", "split": "train"},
        "validation": {"dataset_name": "PreferenceDataset", "data_path": "val.jsonl", "split": "train"},
    },
    "checkpointing": {
        "enabled": True,
        "checkpoint_dir": "ckpt",
        "metric_name": "val:validation-default_loss",
        "higher_is_better": False,
        "keep_top_k": 3,
        "save_period": 2,
        "checkpoint_must_save_by": None,
        "save_optimizer": True,
    },
    "logger": {"log_dir": "logs"},
    "cluster": {"gpus_per_node": 1, "num_nodes": 1},
}


def rank_row(number: int, chosen: str | None = None, rejected: str = "Hard to say, it depends.") -> dict[str, Any]:
    """A pair in the rank shape, the worse completion first."""
    better = chosen or f"Cost is the first risk: {number} percent over budget."
    return {
        "pair_id": f"pair-{number}",
        "context": [{"role": "user", "content": f"Question {number}: what is the risk of this plan?"}],
        "completions": [
            {"rank": 1, "completion": [{"role": "assistant", "content": rejected}]},
            {"rank": 0, "completion": [{"role": "assistant", "content": better}]},
        ],
    }


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """``base`` with dotted keys changed."""
    result = copy.deepcopy(base)
    for dotted, value in changes.items():
        *parents, leaf = dotted.split(".")
        section = result
        for key in parents:
            section = section[key]
        section[leaf] = value
    return result


def start_trainer(*arguments: str) -> subprocess.Popen[str]:
    """The trainer as its users start it."""
    root = Path(__file__).parents[3]
    return subprocess.Popen(
        [sys.executable, "-m", "nvtrader_rl_dagster.local_trainer", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)},
    )
