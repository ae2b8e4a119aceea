"""The algorithms that a run can have, and the NeMo-RL 0.6.0 script behind each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Algorithm:
    """script: file name below NeMo-RL's `examples/`. embedded: the embedded trainer has it as well."""

    name: str
    script: str
    summary: str
    embedded: bool = False


ALGOS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("sft", "run_sft.py", "Supervised fine-tuning on prompts with their wanted answers."),
        Algorithm(
            "dpo",
            "run_dpo.py",
            "Direct preference optimization on pairs of a chosen and a rejected answer.",
            embedded=True,
        ),
        Algorithm("rm", "run_rm.py", "A Bradley-Terry reward model from preference pairs."),
        Algorithm("grpo", "run_grpo.py", "Group relative policy optimization against a reward."),
        Algorithm(
            "ppo",
            "run_grpo.py",
            "PPO's clipped objective with critic-free advantages. NeMo-RL 0.6.0 has no PPO script and no value "
            "model; run_grpo.py does it.",
        ),
        Algorithm("dapo", "run_grpo.py", "GRPO with decoupled clipping, dynamic sampling and overlong shaping."),
        Algorithm("gdpo", "run_grpo.py", "GRPO with several rewards, each normalized on its own."),
        Algorithm(
            "distillation", "run_distillation.py", "On-policy distillation: a student learns from a teacher's logits."
        ),
        Algorithm("eval", "run_eval.py", "Scores of a model on a benchmark; trains nothing."),
    )
}
