"""From NeMo-RL's message logs to rows of rewards."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from nvtrader_rl_dagster.nemo_rl.driver.prompts import PROMPT_KEY, keep_prompt
from nvtrader_rl_dagster.nemo_rl.driver.scoring import Answer, Scoring

HERE = __name__
PROMPT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What moved gold?"}]


def says_gold(prompt: Sequence[dict[str, str]], response: str, ground_truth: str) -> float:
    return float("gold" in response)


def meets_rubric(prompt: Sequence[dict[str, str]], response: str, ground_truth: str) -> float:
    facts = json.loads(ground_truth)["facts"]
    return sum(fact in response for fact in facts) / len(facts)


def answers_the_question(prompt: Sequence[dict[str, str]], response: str, ground_truth: str) -> float:
    return float(prompt[-1]["role"] == "user" and prompt[-1]["content"].split()[-1].rstrip("?") in response)


def too_generous(prompt: Sequence[dict[str, str]], response: str, ground_truth: str) -> float:
    return 1.5


def not_a_number(prompt: Sequence[dict[str, str]], response: str, ground_truth: str) -> float:
    return math.nan


def answer(response: str, facts: tuple[str, ...] = ("2 percent", "supply")) -> Answer:
    return Answer(PROMPT, response, json.dumps({"facts": facts}))


def test_the_mean_is_weighted_and_in_the_range_of_its_rewards() -> None:
    scoring = Scoring.from_config({"rewards": {f"{HERE}.says_gold": 3, f"{HERE}.meets_rubric": 1}, "multi": False})
    rows = scoring.rewards([answer("gold rose 2 percent"), answer("2 percent, on supply"), answer("")])
    assert rows == [[pytest.approx((3 * 1 + 1 * 0.5) / 4)], [pytest.approx(1 / 4)], [0.0]]


def test_with_multi_each_reward_is_a_column_in_the_order_of_the_configuration() -> None:
    scoring = Scoring.from_config({"rewards": {f"{HERE}.meets_rubric": 5, f"{HERE}.says_gold": 1}, "multi": True})
    assert scoring.rewards([answer("gold rose 2 percent"), answer("no")]) == [[0.5, 1.0], [0.0, 0.0]]


def test_the_reward_model_counts_like_any_other_reward() -> None:
    alone = Scoring.from_config({"reward_model": "/rm"})
    assert alone.rewards([answer("a"), answer("b")], [0.9, 0.1]) == [[0.9], [0.1]]
    mixed = Scoring.from_config({"rewards": {f"{HERE}.says_gold": 1, "reward_model": 3}, "reward_model": "/rm"})
    assert mixed.rewards([answer("gold")], [0.2]) == [[pytest.approx((1 + 3 * 0.2) / 4)]]


def test_a_reward_sees_the_messages_and_not_the_rendered_template() -> None:
    log = [
        {"role": "user", "content": "<|im_start|>system\nBe brief.<|im_end|>…"},
        {"role": "assistant", "content": "gold rose"},
        {"role": "environment", "content": ""},
    ]
    of = Answer.of(log, {"ground_truth": "x", PROMPT_KEY: PROMPT})
    assert (of.prompt, of.response, of.ground_truth) == (PROMPT, "gold rose", "x")
    assert of.conversation == [*PROMPT, {"role": "assistant", "content": "gold rose"}]
    scoring = Scoring.from_config({"rewards": {f"{HERE}.answers_the_question": 1}})
    assert scoring.rewards([of]) == [[1.0]]
    assert Answer.of(log, None).prompt == log[:1], "without our processors there is only the log"


def test_a_processor_keeps_what_the_policy_was_shown() -> None:
    def processor(datum_dict: Any, spec: Any, tokenizer: Any, max_seq_length: int, idx: int) -> dict[str, Any]:
        return {"extra_env_info": {"ground_truth": datum_dict["messages"][1]["content"]}, "idx": idx}

    row = {"messages": [{"role": "user", "content": "gold?"}, {"role": "assistant", "content": "truth"}]}
    spec = SimpleNamespace(prompt="Question: {}", system_prompt="Be brief.")
    datum = partial(keep_prompt, processor)(row, spec, None, 64, idx=7)
    assert datum == {
        "idx": 7,
        "extra_env_info": {
            "ground_truth": "truth",
            PROMPT_KEY: [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Question: gold?"},
            ],
        },
    }
    plain = SimpleNamespace(prompt=None, system_prompt=None)
    messages = keep_prompt(processor, row, plain, None, 64, 0)["extra_env_info"][PROMPT_KEY]
    assert messages == [{"role": "user", "content": "gold?"}]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "rewards is empty and there is no reward_model"),
        ({"rewards": {"lenght_sane": 1}}, "unknown reward 'lenght_sane'; there are: .*length_sane"),
        ({"rewards": {"no.such.module": 1}}, r"reward 'no\.such\.module' cannot be loaded: No module named 'no'"),
        ({"rewards": {f"{HERE}.nothing": 1}}, "has no attribute 'nothing'"),
        ({"rewards": {f"{HERE}.PROMPT": 1}}, "is no function but list"),
        ({"rewards": {"length_sane": 0}}, "rewards.length_sane: 0 must be a number above 0"),
        ({"rewards": {"length_sane": "much"}}, "rewards.length_sane: 'much' must be"),
        ({"rewards": {"reward_model": 1}}, "has a weight, but env.nvtrader.reward_model no folder"),
        ({"rewards": {"length_sane": 1}, "multi": True}, "multi needs two rewards"),
    ],
)
def test_a_configuration_that_cannot_reward_says_which_key(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Scoring.from_config(config)


@pytest.mark.parametrize("name", ["too_generous", "not_a_number"])
def test_a_function_that_leaves_the_range_is_named(name: str) -> None:
    scoring = Scoring.from_config({"rewards": {f"{HERE}.{name}": 1}})
    with pytest.raises(
        ValueError, match=rf"reward {HERE}\.{name} returned .* for 'gold'; it must be a number in 0\.\.1"
    ):
        scoring.rewards([answer("gold")])


def test_a_reward_model_that_predicts_no_number_ends_the_run() -> None:
    scoring = Scoring.from_config({"reward_model": "/rm"})
    with pytest.raises(ValueError, match="reward reward_model returned nan for 'gold'"):
        scoring.rewards([answer("gold")], [math.nan])
