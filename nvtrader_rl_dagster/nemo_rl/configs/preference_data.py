"""The `data` section of trainings on preference pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.nemo_rl.configs.data import PreferenceData


def preference_data_section(data: PreferenceData, max_tokens: int) -> dict[str, Any]:
    """Rank-shape files. Without held-out rows `validation` is null, which DPO and RM take as no validation."""
    return {
        "max_input_seq_length": max_tokens,
        "shuffle": True,
        "num_workers": 0,
        "train": _block(data.train),
        "validation": _block(data.validation) if data.validation and data.validates else None,
    }


def _block(path: Path) -> dict[str, Any]:
    return {"dataset_name": "PreferenceDataset", "data_path": str(path), "split": "train"}
