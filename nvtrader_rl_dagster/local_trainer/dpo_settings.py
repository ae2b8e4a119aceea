"""The keys of NeMo-RL's DPO YAML that the embedded trainer reads, and those that it must refuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nvtrader_rl_dagster.local_trainer.checkpoints import CheckpointSettings
from nvtrader_rl_dagster.local_trainer.config import ConfigError, Section
from nvtrader_rl_dagster.local_trainer.console import say
from nvtrader_rl_dagster.local_trainer.dpo_loss import DpoLoss

# Switches that change the training and are not done here.
_REFUSED = (
    "dynamic_batching.enabled",
    "sequence_packing.enabled",
    "megatron_cfg.enabled",
    "dtensor_cfg.lora_cfg.enabled",
)


@dataclass(frozen=True)
class DpoSettings:
    """A checked DPO configuration."""

    config: dict[str, Any]
    policy: Section
    data: Section
    loss: DpoLoss
    checkpoints: CheckpointSettings
    model_name: str
    batch_size: int
    max_length: int
    template_kwargs: dict[str, Any]
    max_grad_norm: float | None
    shuffle: bool
    seed: int
    max_epochs: int
    max_steps: int
    val_period: int
    val_batches: int
    val_batch_size: int
    val_at_start: bool
    val_at_end: bool

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> DpoSettings:
        """Read and check; raises ConfigError with the dotted key. Says what is done with a reduced precision."""
        root = Section(config)
        dpo, policy, data = root.section("dpo"), root.section("policy"), root.section("data")
        for key in _REFUSED:
            if _lookup(policy.values, key):
                raise ConfigError(
                    f"config: 'policy.{key}' is true; the embedded trainer does not do that: set it to false."
                )
        precision = policy.get("precision", str)
        if precision not in ("float32", "bfloat16", "float16"):
            raise ConfigError(f"config: 'policy.precision' is {precision!r}; the embedded trainer computes in float32.")
        if precision != "float32":
            say(f"policy.precision is {precision}: the embedded trainer computes in float32 instead")
        return cls(
            config=config,
            policy=policy,
            data=data,
            loss=DpoLoss.from_config(dpo),
            checkpoints=CheckpointSettings.from_config(root.section("checkpointing")),
            model_name=policy.get("model_name", str),
            batch_size=policy.positive("train_global_batch_size"),
            max_length=min(data.positive("max_input_seq_length"), policy.positive("max_total_sequence_length")),
            template_kwargs=policy.section("tokenizer").section("chat_template_kwargs", optional=True).values,
            max_grad_norm=policy.optional("max_grad_norm", float),
            shuffle=data.get("shuffle", bool),
            seed=dpo.get("seed", int),
            max_epochs=dpo.get("max_num_epochs", int),
            max_steps=dpo.get("max_num_steps", int),
            val_period=dpo.get("val_period", int),
            val_batches=dpo.get("val_batches", int),
            val_batch_size=dpo.positive("val_global_batch_size"),
            val_at_start=dpo.get("val_at_start", bool),
            val_at_end=dpo.get("val_at_end", bool),
        )


def _lookup(values: Any, dotted: str) -> Any:
    for key in dotted.split("."):
        values = values.get(key) if isinstance(values, dict) else None
    return values
