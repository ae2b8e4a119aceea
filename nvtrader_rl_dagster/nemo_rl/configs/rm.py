"""A Bradley-Terry reward model: options, and the YAML for `run_rm.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from nvtrader_rl_dagster.nemo_rl.configs.built import BuiltConfig
from nvtrader_rl_dagster.nemo_rl.configs.data import PreferenceData
from nvtrader_rl_dagster.nemo_rl.configs.options import TrainingOptions
from nvtrader_rl_dagster.nemo_rl.configs.overrides import take_overrides
from nvtrader_rl_dagster.nemo_rl.configs.preference_data import preference_data_section
from nvtrader_rl_dagster.nemo_rl.configs.supervised import supervised_config, supervised_keys
from nvtrader_rl_dagster.nemo_rl.configs.target import Target


class RmOptions(TrainingOptions):
    """What a user changes about the training of a reward model."""

    option_keys: ClassVar[Mapping[str, str]] = {
        **TrainingOptions.option_keys,
        **supervised_keys("rm", batch="batch_pairs"),
    }

    batch_pairs: int = Field(
        default=32,
        ge=1,
        description="Pairs per optimizer step. Shrinks to the number of training pairs when there are fewer.",
    )
    learning_rate: float = Field(default=2e-6, gt=0, description="Peak AdamW learning rate, reached by linear warm-up.")
    weight_decay: float = Field(default=0.1, ge=0, description="AdamW weight decay.")
    max_sequence_tokens: int = Field(
        default=2048, ge=16, description="Pairs with a longer side are masked out of the loss, as in NeMo-RL."
    )
    validation_pairs: int = Field(default=256, ge=1, description="Held-out pairs behind the validation loss.")


def build_rm_config(
    options: RmOptions,
    data: PreferenceData,
    checkpoints: Path,
    logs: Path,
    target: Target = Target(),  # noqa: B008
) -> BuiltConfig:
    """A reward model on top of the base model. Raises `ValueError` for no training pair (`no_rows`), for Megatron or
    LoRA, which cannot do it, or for an override that cannot be.

    Keys: NeMo-RL `examples/configs/rm.yaml` and what `algorithms/rm.py` reads beyond it. The chat template there is
    Llama's; ours is the model's own.
    """
    options, overrides = take_overrides("rm", options, target.version)
    if options.worker == "megatron":
        raise ValueError("worker: NeMo-RL trains no reward model with Megatron; use dtensor or dtensor_v2")
    if options.lora_rank:
        raise ValueError("lora: a reward model has a new head, which an adapter file leaves out; set lora_rank to 0")
    return supervised_config(
        "rm",
        options,
        overrides,
        data,
        checkpoints,
        logs,
        target,
        batch=options.batch_pairs,
        held_out=options.validation_pairs,
        unit="pair",
        weight_decay=options.weight_decay,
        data_section=preference_data_section(data, options.max_sequence_tokens),
        policy={"reward_model_cfg": {"enabled": True, "reward_model_type": "bradley_terry"}},
    )
