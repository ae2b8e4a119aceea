"""What a user changes about a training on answers that the policy generates itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from nvtrader_rl_dagster.nemo_rl.configs.options import TrainingOptions
from nvtrader_rl_dagster.rewards import REWARDS

Environment = Literal["nvtrader", "math"]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def rollout_keys(section: str) -> dict[str, str]:
    """Keys of an algorithm's own section that options decide."""
    return {
        f"{section}.max_num_epochs": "epochs",
        f"{section}.max_num_steps": "max_steps",
        f"{section}.num_prompts_per_step": "prompts_per_step",
        f"{section}.num_generations_per_prompt": "generations_per_prompt",
        f"{section}.val_period": "validation_period",
        f"{section}.max_val_samples": "validation_prompts",
        f"{section}.seed": "seed",
    }


class RolloutOptions(TrainingOptions):
    """Settings that GRPO and its variants, PPO and on-policy distillation share."""

    option_keys: ClassVar[Mapping[str, str]] = {
        **TrainingOptions.option_keys,
        "policy.train_micro_batch_size": "micro_batch",
        "policy.generation.max_new_tokens": "max_new_tokens",
        "policy.generation.temperature": "temperature",
        "policy.generation.vllm_cfg.gpu_memory_utilization": "gpu_memory_utilization",
    }

    prompts_per_step: int = Field(
        default=8,
        ge=1,
        description="Prompts answered in each step. Shrinks to the number of prompts when there are fewer.",
    )
    generations_per_prompt: int = Field(default=8, ge=1, description="Answers generated for each prompt of a step.")
    updates_per_step: int = Field(
        default=1,
        ge=1,
        description="Optimizer updates made from one step's answers, each from an equal share of them. With one, the "
        "clip range never acts, because the policy has not moved yet.",
    )
    learning_rate: float = Field(default=1e-6, gt=0, description="Peak AdamW learning rate, reached by linear warm-up.")
    micro_batch: int = Field(
        default=4,
        ge=1,
        description="Answers that one device computes at once; more is faster and needs more memory. Shrinks to a "
        "divisor of the batch.",
    )
    max_sequence_tokens: int = Field(
        default=1024, ge=16, description="Tokens of a prompt and its answer together at most."
    )
    max_new_tokens: int = Field(
        default=512,
        ge=1,
        description="Tokens of an answer at most; longer ones are cut off. The rest of max_sequence_tokens is for the "
        "prompt; longer prompts are not trained on.",
    )
    temperature: float = Field(
        default=1.0, gt=0, description="Sampling temperature of the answers; 1 samples from the policy as it is."
    )
    gpu_memory_utilization: float = Field(
        default=0.4,
        gt=0,
        lt=1,
        description="Share of the memory that generation (vLLM) takes. On unified memory this is the system's memory: "
        "0.3 to 0.5 leaves room for training.",
    )
    environment: Environment = Field(
        default="nvtrader",
        description="What scores an answer: 'nvtrader' (the rewards below) or 'math' (the answer is compared with the "
        "prompt's ground truth).",
    )
    rewards: dict[str, Weight] = Field(
        default=dict.fromkeys(REWARDS, 1.0),
        description="Rewards of the environment 'nvtrader' and their weights in the mean, each from 0 to 1: by name, "
        "by the dotted path of a function of yours, or 'reward_model' for the score of the reward model.",
    )
    reward_model: str = Field(
        default="",
        description="Folder of an exported reward model for the environment 'nvtrader'. Its weight is the reward "
        "'reward_model', 1 if that is not given. Empty: none.",
    )
    validation_prompts: int = Field(
        default=64, ge=1, description="Held-out prompts answered and scored in each validation at most."
    )
