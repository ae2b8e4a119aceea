"""DPO: options, and the YAML for `run_dpo.py`."""

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


class DpoOptions(TrainingOptions):
    """What a user changes about a DPO run."""

    option_keys: ClassVar[Mapping[str, str]] = {
        **TrainingOptions.option_keys,
        **supervised_keys("dpo", batch="batch_pairs"),
        "dpo.reference_policy_kl_penalty": "beta",
        "dpo.sft_loss_weight": "sft_loss_weight",
    }

    batch_pairs: int = Field(
        default=16,
        ge=1,
        description="Pairs per optimizer step. Shrinks to the number of training pairs when there are fewer.",
    )
    # Full-weight AdamW on a 135M model: chosen on held-out pairs and an off-topic probe, see docs/learning.md.
    learning_rate: float = Field(default=5e-6, gt=0, description="Peak AdamW learning rate, reached by linear warm-up.")
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
    validation_pairs: int = Field(
        default=128,
        ge=1,
        description="Held-out pairs behind the validation loss during training; eval_scores uses all of them.",
    )


def build_dpo_config(
    options: DpoOptions,
    data: PreferenceData,
    checkpoints: Path,
    logs: Path,
    target: Target = Target.embedded(),  # noqa: B008 (frozen)
) -> BuiltConfig:
    """DPO from the base model. Raises `ValueError` for no training pair (`no_rows`) or an override or option that
    cannot be.

    Keys: NeMo-RL `examples/configs/dpo.yaml` and what `algorithms/dpo.py` reads beyond it.
    """
    options, overrides = take_overrides("dpo", options, target.version)
    return supervised_config(
        "dpo",
        options,
        overrides,
        data,
        checkpoints,
        logs,
        target,
        batch=options.batch_pairs,
        held_out=options.validation_pairs,
        unit="pair",
        weight_decay=0.0,
        data_section=preference_data_section(data, options.max_sequence_tokens),
        own={
            "reference_policy_kl_penalty": options.beta,
            "preference_average_log_probs": False,
            "sft_average_log_probs": False,
            "preference_loss_weight": 1.0,
            "sft_loss_weight": options.sft_loss_weight,
        },
    )
