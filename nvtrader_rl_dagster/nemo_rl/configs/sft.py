"""Supervised fine-tuning: options, and the YAML for `run_sft.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from nvtrader_rl_dagster.nemo_rl.configs.built import BuiltConfig
from nvtrader_rl_dagster.nemo_rl.configs.data import ChatData
from nvtrader_rl_dagster.nemo_rl.configs.options import TrainingOptions
from nvtrader_rl_dagster.nemo_rl.configs.overrides import take_overrides
from nvtrader_rl_dagster.nemo_rl.configs.supervised import supervised_config, supervised_keys
from nvtrader_rl_dagster.nemo_rl.configs.target import Target


class SftOptions(TrainingOptions):
    """What a user changes about supervised fine-tuning."""

    option_keys: ClassVar[Mapping[str, str]] = {
        **TrainingOptions.option_keys,
        **supervised_keys("sft", batch="batch_conversations"),
    }

    batch_conversations: int = Field(
        default=32,
        ge=1,
        description="Conversations per optimizer step. Shrinks to the number of training rows when there are fewer.",
    )
    weight_decay: float = Field(default=0.1, ge=0, description="AdamW weight decay.")
    max_sequence_tokens: int = Field(
        default=1024, ge=16, description="Longer conversations are masked out of the loss, as in NeMo-RL."
    )
    validation_conversations: int = Field(
        default=256, ge=1, description="Held-out conversations behind the validation loss."
    )


def build_sft_config(
    options: SftOptions,
    data: ChatData,
    checkpoints: Path,
    logs: Path,
    target: Target = Target(),  # noqa: B008
) -> BuiltConfig:
    """SFT from the base model. Raises `ValueError` for no training row (`no_rows`) or an override that cannot be.

    Keys: NeMo-RL `examples/configs/sft.yaml` and what `algorithms/sft.py` and the chat data set read beyond it. The
    template there is a plain question and answer; ours is the model's own.
    """
    options, overrides = take_overrides("sft", options, target.version)
    return supervised_config(
        "sft",
        options,
        overrides,
        data,
        checkpoints,
        logs,
        target,
        batch=options.batch_conversations,
        held_out=options.validation_conversations,
        unit="conversation",
        weight_decay=options.weight_decay,
        data_section=_data_section(data, options.max_sequence_tokens),
        own={"only_unmask_final": False} if target.version == "0.7.0" else {},
        policy=_packing(options.max_sequence_tokens),
    )


def _data_section(data: ChatData, max_tokens: int) -> dict[str, Any]:
    return {
        "max_input_seq_length": max_tokens,
        "add_bos": True,
        "add_eos": True,
        # The header of the assistant's turn is given at generation, so it is not learned.
        "add_generation_prompt": True,
        "shuffle": True,
        "num_workers": 0,
        "train": _block(data.train),
        "validation": _block(data.validation) if data.validation and data.validates else None,
    }


def _packing(max_tokens: int) -> dict[str, Any]:
    """Both off, with what an override that switches one on needs."""
    common = {"enabled": False, "train_mb_tokens": max_tokens, "sequence_length_round": 64}
    return {
        "dynamic_batching": common,
        "sequence_packing": common | {"algorithm": "modified_first_fit_decreasing"},
    }


def _block(path: Path) -> dict[str, Any]:
    return {
        "dataset_name": "openai_format",
        "data_path": str(path),
        "split": "train",
        "chat_key": "messages",
        "prompt_file": None,
        "system_prompt_file": None,
        "processor": "sft_processor",
    }
