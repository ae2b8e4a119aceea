"""The algorithms that a run can have: NeMo-RL's script and reference behind each, its data and its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from nvtrader_rl_dagster.nemo_rl.versions import DEFAULT_VERSION, SUPPORTED


class DataShape(str, Enum):
    """What one row of the training data is."""

    PREFERENCE = "preference"
    CHAT = "chat"
    PROMPTS = "prompts"
    BENCHMARK = "benchmark"


@dataclass(frozen=True)
class Release:
    """An algorithm in one NeMo-RL release.

    script: file below `examples/`. reference: YAML below `examples/configs/`. section: the algorithm's own section.
    sections: all sections of the YAML. resolvers: whether the script knows `${mul:…}`, `${div:…}`, `${max:…}`.
    """

    script: str
    reference: str
    section: str
    sections: tuple[str, ...]
    resolvers: bool


@dataclass(frozen=True)
class MetricSpec:
    """A metric by the name that it has here, whatever NeMo-RL prints. better: None where neither direction is."""

    name: str
    better: Literal["higher", "lower"] | None = None


@dataclass(frozen=True)
class Algorithm:
    """tracked: NeMo-RL's full name of the metric that ranks checkpoints, empty where nothing is trained.

    embedded: the embedded trainer has it as well.
    """

    name: str
    summary: str
    data: DataShape
    releases: Mapping[str, Release]
    train_metrics: tuple[MetricSpec, ...]
    validation_metrics: tuple[MetricSpec, ...]
    tracked: str
    higher_is_better: bool
    embedded: bool = False

    def release(self, version: str) -> Release:
        """Raises `ValueError` for a version that is not supported."""
        try:
            return self.releases[version]
        except KeyError:
            raise ValueError(f"NeMo-RL {version!r} is not supported; there are: {', '.join(SUPPORTED)}") from None

    def full_name(self, metric: str) -> str:
        """NeMo-RL's name of a validation metric, as `checkpointing.metric_name` wants it."""
        last = max((spec.name for spec in self.validation_metrics if self.tracked.endswith(spec.name)), key=len)
        return self.tracked.removesuffix(last) + metric

    @property
    def script(self) -> str:
        return self.releases[DEFAULT_VERSION].script


_COMMON = ("logger", "cluster", "checkpointing")
_LOSS = MetricSpec("loss", "lower")
_OPTIMIZER = (MetricSpec("grad_norm"), MetricSpec("lr"))
_PAIRS = (
    _LOSS,
    MetricSpec("accuracy", "higher"),
    MetricSpec("rewards_chosen_mean"),
    MetricSpec("rewards_rejected_mean"),
)
_DPO = (*_PAIRS, MetricSpec("preference_loss", "lower"), MetricSpec("sft_loss", "lower"))
_ROLLOUT = (MetricSpec("mean_gen_tokens_per_sample"), MetricSpec("truncation_rate", "lower"))
_RL = (
    _LOSS,
    MetricSpec("reward", "higher"),
    MetricSpec("kl_penalty", "lower"),
    MetricSpec("gen_kl_error", "lower"),
    MetricSpec("policy_kl_error", "lower"),
    MetricSpec("approx_entropy"),
    *_ROLLOUT,
    *_OPTIMIZER,
)
_RL_VALIDATION = (MetricSpec("accuracy", "higher"), MetricSpec("avg_length"))


def _same(script: str, reference: str, section: str, sections: tuple[str, ...], resolvers: bool) -> dict[str, Release]:
    return {version: Release(script, reference, section, sections, resolvers) for version in SUPPORTED}


def _grpo(reference: str, reference_07: str = "") -> dict[str, Release]:
    """GRPO and its variants; 0.7.0 has two more sections."""
    sections = ("policy", "loss_fn", "env", "data", "grpo", *_COMMON)
    more = (*sections, "data_plane", "on_policy_distillation")
    return {
        "0.6.0": Release("run_grpo.py", reference, "grpo", sections, True),
        "0.7.0": Release("run_grpo.py", reference_07 or reference, "grpo", more, True),
    }


_PPO = {
    "0.6.0": _grpo("grpo_math_1B.yaml")["0.6.0"],
    "0.7.0": Release(
        "run_ppo.py",
        "ppo_math_1B.yaml",
        "ppo",
        ("policy", "value", "loss_fn", "value_loss_fn", "env", "data", "ppo", *_COMMON),
        True,
    ),
}

ALGOS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            "sft",
            "Supervised fine-tuning on prompts with their wanted answers.",
            DataShape.CHAT,
            _same("run_sft.py", "sft.yaml", "sft", ("policy", "data", "sft", *_COMMON), True),
            (_LOSS, *_OPTIMIZER, MetricSpec("num_unmasked_tokens")),
            (_LOSS,),
            "val:val_loss",
            False,
        ),
        Algorithm(
            "dpo",
            "Direct preference optimization on pairs of a chosen and a rejected answer.",
            DataShape.PREFERENCE,
            _same("run_dpo.py", "dpo.yaml", "dpo", ("policy", "data", "dpo", *_COMMON), False),
            (*_DPO, *_OPTIMIZER, MetricSpec("num_valid_samples")),
            (*_DPO, MetricSpec("num_valid_samples")),
            "val:validation-default_loss",
            False,
            embedded=True,
        ),
        Algorithm(
            "rm",
            "A Bradley-Terry reward model from preference pairs.",
            DataShape.PREFERENCE,
            _same("run_rm.py", "rm.yaml", "rm", ("policy", "data", "rm", *_COMMON), False),
            (*_PAIRS, *_OPTIMIZER, MetricSpec("num_valid_samples")),
            _PAIRS,
            "val:validation-default_loss",
            False,
        ),
        Algorithm(
            "grpo",
            "Group relative policy optimization against a reward.",
            DataShape.PROMPTS,
            _grpo("grpo_math_1B.yaml"),
            _RL,
            _RL_VALIDATION,
            "val:accuracy",
            True,
        ),
        Algorithm(
            "ppo",
            "PPO. NeMo-RL 0.7.0 has it with a value model; 0.6.0 has PPO's clipped objective with critic-free "
            "advantages, through run_grpo.py.",
            DataShape.PROMPTS,
            _PPO,
            (*_RL, MetricSpec("critic_loss", "lower"), MetricSpec("critic_grad_norm")),
            _RL_VALIDATION,
            "val:accuracy",
            True,
        ),
        Algorithm(
            "dapo",
            "GRPO with decoupled clipping, dynamic sampling and overlong shaping.",
            DataShape.PROMPTS,
            _grpo("recipes/llm/dapo-qwen2.5-7b.yaml", "recipes/llm/dapo-qwen2.5-7b.v2.yaml"),
            (*_RL, MetricSpec("filtered_reward", "higher")),
            _RL_VALIDATION,
            "val:accuracy",
            True,
        ),
        Algorithm(
            "gdpo",
            "GRPO with several rewards, each normalized on its own.",
            DataShape.PROMPTS,
            _grpo("gdpo_math_1B.yaml"),
            _RL,
            _RL_VALIDATION,
            "val:accuracy",
            True,
        ),
        Algorithm(
            "distillation",
            "On-policy distillation: a student learns from a teacher's logits.",
            DataShape.PROMPTS,
            _same(
                "run_distillation.py",
                "distillation_math.yaml",
                "distillation",
                ("policy", "teacher", "loss_fn", "env", "data", "distillation", *_COMMON),
                True,
            ),
            (_LOSS, *_ROLLOUT, *_OPTIMIZER),
            _RL_VALIDATION,
            "val:accuracy",
            True,
        ),
        Algorithm(
            "eval",
            "Scores of a model on a benchmark; trains nothing.",
            DataShape.BENCHMARK,
            _same(
                "run_eval.py",
                "evals/eval.yaml",
                "eval",
                ("eval", "generation", "tokenizer", "data", "env", "cluster"),
                False,
            ),
            (),
            (MetricSpec("score", "higher"),),
            "",
            True,
        ),
    )
}
