"""On-policy distillation: options, and the YAML for `run_distillation.py`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from nvtrader_rl_dagster.nemo_rl.configs.base_model import resolve_base_model
from nvtrader_rl_dagster.nemo_rl.configs.built import BuiltConfig
from nvtrader_rl_dagster.nemo_rl.configs.data import PromptData
from nvtrader_rl_dagster.nemo_rl.configs.environments import environment_section
from nvtrader_rl_dagster.nemo_rl.configs.overrides import finished, take_overrides
from nvtrader_rl_dagster.nemo_rl.configs.rollout_options import RolloutOptions, rollout_keys
from nvtrader_rl_dagster.nemo_rl.configs.rollout_rules import rollout_rules
from nvtrader_rl_dagster.nemo_rl.configs.rollout_sections import assembled, rollout_policy, step_section
from nvtrader_rl_dagster.nemo_rl.configs.rollouts import plan_rollouts
from nvtrader_rl_dagster.nemo_rl.configs.target import Target


class DistillationOptions(RolloutOptions):
    """What a user changes about an on-policy distillation."""

    option_keys: ClassVar[Mapping[str, str]] = {
        **RolloutOptions.option_keys,
        **rollout_keys("distillation"),
        "teacher.model_name": "teacher_model",
        "distillation.topk_logits_k": "topk_logits",
        "loss_fn.kl_type": "kl_type",
        "loss_fn.mixed_kl_weight": "mixed_kl_weight",
    }

    base_model: str = Field(
        default="auto",
        description="Student at the start: a local Hugging Face folder, 'builtin:smollm2', 'builtin:tiny', or 'auto' "
        "(NVTRADER_RL_BASE_MODEL if set, else smollm2 when its package is installed, else tiny).",
    )
    teacher_model: str = Field(
        default="auto",
        description="Teacher: a model with the student's vocabulary, given like the student. A teacher that is the "
        "student itself teaches nothing.",
    )
    prompts_per_step: int = Field(
        default=16,
        ge=1,
        description="Prompts answered in each step. Shrinks to the number of prompts when there are fewer.",
    )
    generations_per_prompt: int = Field(default=1, ge=1, description="Answers generated for each prompt of a step.")
    learning_rate: float = Field(default=1e-5, gt=0, description="Peak AdamW learning rate, reached by linear warm-up.")
    topk_logits: int = Field(
        default=64, ge=1, description="The teacher's most likely tokens that each position is compared on."
    )
    kl_type: Literal["forward", "reverse", "mixed"] = Field(
        default="mixed",
        description="'forward' covers all that the teacher may say, 'reverse' keeps to what it says most, 'mixed' is "
        "both.",
    )
    mixed_kl_weight: float = Field(default=0.5, ge=0, le=1, description="Share of 'forward' in the mixed divergence.")


def build_distillation_config(
    options: DistillationOptions,
    data: PromptData,
    checkpoints: Path,
    logs: Path,
    target: Target = Target(),  # noqa: B008 (frozen)
) -> BuiltConfig:
    """The student answers, the teacher's distribution at each of its tokens is learned.

    Raises `ValueError` for data, options or overrides that NeMo-RL could not train with. Keys: NeMo-RL
    `examples/configs/distillation_math.yaml` and what `algorithms/distillation.py` reads beyond it.
    """
    options, overrides = take_overrides("distillation", options, target.version)
    if options.lora_rank:
        raise ValueError("lora: NeMo-RL's distillation has no reference with LoRA; set lora_rank 0")
    plan = plan_rollouts(options, data, target)
    student, teacher = resolve_base_model(options.base_model), resolve_base_model(options.teacher_model)
    own: dict[str, Any] = {
        "distillation": {**step_section(options, data, plan), "topk_logits_k": options.topk_logits},
        "teacher": rollout_policy(options, target, plan, model=teacher, ticks=plan.steps, trains=False),
        "loss_fn": {
            "kl_type": options.kl_type,
            "mixed_kl_weight": options.mixed_kl_weight,
            "zero_outside_topk": False,
        },
    }
    policy = rollout_policy(options, target, plan, model=student, ticks=plan.steps)
    config = assembled(
        "distillation",
        options,
        data,
        checkpoints,
        logs,
        target,
        plan,
        policy=policy,
        env=environment_section(options),
        own=own,
    )
    notes = [
        *plan.notes,
        "student and teacher must have the same vocabulary: NeMo-RL compares both tokenizers at start",
    ]
    if student == teacher:
        notes.append("student and teacher are the same model: the loss is 0 and nothing is learned; set teacher_model")
    return finished(
        "distillation",
        config,
        overrides,
        target,
        steps=plan.steps,
        notes=notes,
        rules=(rollout_rules("distillation"),),
    )
