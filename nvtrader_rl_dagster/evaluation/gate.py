"""The gate: a candidate must beat the base and the champion with stated confidence, and break nothing."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, Field

from nvtrader_rl_dagster.evaluation.scores import Evaluation


class GateRules(BaseModel):
    """When a candidate counts as provably better."""

    confidence: float = Field(
        default=0.95,
        gt=0.5,
        lt=1,
        description="A one-sided paired test over prompts must reach this confidence.",
    )
    min_prompts: int = Field(default=10, ge=1, description="Held-out prompts needed before any comparison counts.")
    max_off_topic_rise: float = Field(
        default=0.05,
        ge=0,
        description=(
            "Guard: the loss on off-topic general-knowledge texts may rise by this share over the base. "
            "A larger rise means the model was damaged."
        ),
    )
    max_chosen_drop: float = Field(
        default=1.0,
        ge=0,
        description=(
            "Guard: the log-probability of preferred answers may fall by this many nats per token. "
            "A larger fall means that the policy left both answers."
        ),
    )


@dataclass(frozen=True)
class GateCheck:
    """One line of the decision. A failed guard is damage; a failed comparison is only 'not better'."""

    name: str
    passed: bool
    guard: bool
    detail: str


@dataclass(frozen=True)
class GateResult:
    """The decision, in the order in which a reader wants it."""

    passed: bool
    reason: str
    checks: list[GateCheck]

    @property
    def guards_passed(self) -> bool:
        return all(check.passed for check in self.checks if check.guard)


def judge(evaluation: Evaluation, rules: GateRules) -> GateResult:
    """Apply the rules to what was measured. Every check is listed, also after the first failure."""
    checks = [*_guards(evaluation, rules), *_comparisons(evaluation, rules)]
    failed = [check for check in checks if not check.passed]
    if failed:
        return GateResult(False, "; ".join(check.detail for check in failed), checks)
    return GateResult(True, "; ".join(check.detail for check in checks if not check.guard), checks)


def _guards(e: Evaluation, rules: GateRules) -> list[GateCheck]:
    base, candidate = e.off_topic_loss["base"], e.off_topic_loss["candidate"]
    rise = candidate / base - 1
    shift = e.candidate.chosen_shift_per_token
    return [
        GateCheck(
            "finite_scores",
            e.candidate.not_finite == 0,
            True,
            f"{e.candidate.not_finite} of {e.pairs} held-out pairs have a score that is not a number",
        ),
        GateCheck(
            "off_topic",
            # Written so that a loss that is not a number fails.
            rise <= rules.max_off_topic_rise,
            True,
            f"off-topic loss {base:.3f} → {candidate:.3f} ({rise:+.1%}, at most "
            f"{rules.max_off_topic_rise:+.0%} allowed)",
        ),
        GateCheck(
            "chosen_likelihood",
            shift >= -rules.max_chosen_drop,
            True,
            f"log-probability of preferred answers moved by {shift:+.3f} nats a token (at least "
            f"{-rules.max_chosen_drop:+.2f} needed)",
        ),
    ]


def _comparisons(e: Evaluation, rules: GateRules) -> list[GateCheck]:
    alpha = 1 - rules.confidence
    result = e.candidate
    checks = [
        GateCheck(
            "enough_prompts",
            e.prompts >= rules.min_prompts,
            False,
            f"{e.prompts} held-out prompts (at least {rules.min_prompts} needed)",
        ),
        GateCheck(
            "better_than_base",
            result.accuracy > 0.5 and result.p_value <= alpha,
            False,
            f"against the base: held-out accuracy {result.accuracy:.3f} "
            f"[{result.interval[0]:.3f}, {result.interval[1]:.3f}], {_p(result.p_value)} "
            f"(at most {alpha:.2f} needed)",
        ),
    ]
    if e.against_champion is not None:
        c = e.against_champion
        checks.append(
            GateCheck(
                "better_than_champion",
                c.difference > 0 and c.p_value <= alpha,
                False,
                f"against the champion: accuracy {c.difference:+.3f} "
                f"[{c.interval[0]:+.3f}, {c.interval[1]:+.3f}], {_p(c.p_value)} "
                f"(at most {alpha:.2f} needed)",
            )
        )
    return checks


def _p(value: float) -> str:
    return f"p = {value:.4f}" if value >= 0.0001 else "p < 0.0001"
