"""Scores and gate: who is promoted, who is not, and what it says."""

from __future__ import annotations

import math
import random
from pathlib import Path

import orjson
import pytest

from nvtrader_rl_dagster.evaluation.gate import GateRules, judge
from nvtrader_rl_dagster.evaluation.scores import (
    Evaluation,
    PairScore,
    evaluate,
    prompts_by_pair,
    read_scores,
)

OFF_TOPIC = {"base": 3.0, "candidate": 3.01, "champion": 3.0}


def base_scores(pairs: int) -> dict[str, PairScore]:
    draw = random.Random(7)
    return {
        f"p{n}": PairScore(-40 - 10 * draw.random(), -40 - 10 * draw.random(), 20 + n % 7, 20 + n % 5)
        for n in range(pairs)
    }


def moved(base: dict[str, PairScore], share_right: float, by: float = 1.0) -> dict[str, PairScore]:
    """A model whose margin moves the right way on a share of the pairs, evenly spread."""
    right = round(share_right * len(base))
    return {
        pair: PairScore(s.chosen + (by if n < right else -by), s.rejected, s.chosen_tokens, s.rejected_tokens)
        for n, (pair, s) in enumerate(base.items())
    }


def one_prompt_each(base: dict[str, PairScore]) -> dict[str, str]:
    return {pair: f"prompt of {pair}" for pair in base}


def evaluated(
    share: float, pairs: int = 40, champion: float | None = None, off_topic: dict[str, float] | None = None
) -> Evaluation:
    base = base_scores(pairs)
    return evaluate(
        base,
        moved(base, share),
        None if champion is None else moved(base, champion),
        one_prompt_each(base),
        off_topic or OFF_TOPIC,
    )


def test_accuracy_is_by_implicit_reward_against_the_base() -> None:
    base = {"a": PairScore(-10, -5, 5, 5), "b": PairScore(-5, -10, 5, 5)}
    candidate = {"a": PairScore(-9, -5, 5, 5), "b": PairScore(-5, -8, 5, 5)}
    result = evaluate(base, candidate, None, {"a": "1", "b": "2"}, OFF_TOPIC)
    # 'a' moved toward the chosen answer although it is still the less likely one; 'b' moved away.
    assert result.candidate.accuracy == 0.5
    assert result.candidate.margin == pytest.approx((1 - 2) / 2)
    assert result.base_raw_accuracy == 0.5


def test_prompts_weigh_the_same_whatever_their_number_of_pairs() -> None:
    base = base_scores(11)
    candidate = moved(base, 1.0)
    candidate["p10"] = PairScore(base["p10"].chosen - 1, base["p10"].rejected, 1, 1)
    prompts = {f"p{n}": "many" for n in range(10)} | {"p10": "one"}
    result = evaluate(base, candidate, None, prompts, OFF_TOPIC)
    assert (result.prompts, result.pairs) == (2, 11)
    assert result.candidate.accuracy == 0.5
    assert result.candidate.pair_accuracy == pytest.approx(10 / 11)


def test_a_clearly_better_candidate_is_promotable() -> None:
    result = judge(evaluated(0.8), GateRules())
    assert result.passed and result.guards_passed
    assert "held-out accuracy 0.800" in result.reason


@pytest.mark.parametrize("share", [0.5, 0.55, 0.3])
def test_a_candidate_without_proof_is_not_promotable(share: float) -> None:
    result = judge(evaluated(share), GateRules())
    assert not result.passed and result.guards_passed
    assert "against the base" in result.reason


def test_an_unchanged_model_scores_one_half_and_is_not_promotable() -> None:
    base = base_scores(40)
    result = evaluate(base, dict(base), None, one_prompt_each(base), OFF_TOPIC)
    assert result.candidate.accuracy == 0.5 and result.candidate.p_value == 1.0
    assert not judge(result, GateRules()).passed


def test_it_must_also_beat_the_champion() -> None:
    same = judge(evaluated(0.8, champion=0.8), GateRules())
    assert not same.passed and "against the champion" in same.reason
    better = judge(evaluated(0.9, champion=0.5), GateRules())
    assert better.passed


def test_too_few_prompts_prove_nothing() -> None:
    result = judge(evaluated(1.0, pairs=8), GateRules(min_prompts=10))
    assert not result.passed and "8 held-out prompts" in result.reason


@pytest.mark.parametrize("loss", [3.2, math.nan, math.inf])
def test_a_damaged_model_is_stopped_by_the_guard_whatever_its_accuracy(loss: float) -> None:
    result = judge(evaluated(1.0, off_topic={"base": 3.0, "candidate": loss}), GateRules())
    assert not result.passed and not result.guards_passed
    assert "off-topic loss" in result.reason


def test_a_policy_that_leaves_the_preferred_answers_is_stopped() -> None:
    base = base_scores(40)
    gone = {p: PairScore(s.chosen - 60, s.rejected - 90, s.chosen_tokens, s.rejected_tokens) for p, s in base.items()}
    result = judge(evaluate(base, gone, None, one_prompt_each(base), OFF_TOPIC), GateRules())
    assert not result.guards_passed and "nats a token" in result.reason


def test_a_score_that_is_no_number_fails_the_guard_and_counts_as_lost() -> None:
    base = base_scores(40)
    candidate = moved(base, 1.0)
    candidate["p0"] = PairScore(math.nan, -1.0, 20, 20)
    result = evaluate(base, candidate, None, one_prompt_each(base), OFF_TOPIC)
    assert result.candidate.not_finite == 1 and result.candidate.accuracy == pytest.approx(39 / 40)
    assert not judge(result, GateRules()).guards_passed


def test_no_common_pair_is_an_error_not_a_zero() -> None:
    with pytest.raises(ValueError, match="nothing can be compared"):
        evaluate({}, {}, None, {"a": "1"}, OFF_TOPIC)


def test_masked_pairs_are_left_out_and_counted(tmp_path: Path) -> None:
    file = tmp_path / "base.jsonl"
    row = {"chosen_logprob": -1.0, "rejected_logprob": -2.0, "chosen_tokens": 1, "rejected_tokens": 1}
    file.write_bytes(
        orjson.dumps({"pair_id": "a", "valid": True, **row})
        + b"\n"
        + orjson.dumps({"pair_id": "b", "valid": False, **row})
        + b"\n"
    )
    scores = read_scores(file)
    assert set(scores) == {"a"}
    result = evaluate(scores, scores, None, {"a": "1", "b": "2"}, OFF_TOPIC)
    assert (result.pairs, result.not_scored) == (1, 1)


def test_prompts_are_told_apart_by_their_messages(tmp_path: Path) -> None:
    file = tmp_path / "validation.jsonl"
    contexts = [[{"role": "user", "content": "x"}], [{"content": "x", "role": "user"}], []]
    file.write_bytes(b"".join(orjson.dumps({"pair_id": str(n), "context": c}) + b"\n" for n, c in enumerate(contexts)))
    prompts = prompts_by_pair(file)
    assert prompts["0"] == prompts["1"] != prompts["2"]
