"""Each reward is in 0..1 whatever it is given, and is found by its name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_rl_dagster.rewards import REWARDS, find_reward

MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user"]), "content": st.text()}), min_size=1
)


@pytest.mark.parametrize("name", sorted(REWARDS))
@given(prompt=MESSAGES, response=st.text(), ground_truth=st.text())
def test_a_reward_is_a_number_between_0_and_1_and_always_the_same(
    name: str, prompt: list[dict[str, str]], response: str, ground_truth: str
) -> None:
    reward = find_reward(name)
    value = reward(prompt, response, ground_truth)
    assert 0 <= value <= 1 and value == reward(prompt, response, ground_truth)


@pytest.mark.parametrize(("words", "value"), [(0, 0), (10, 0.5), (20, 1), (300, 1), (450, 0.5), (600, 0), (5000, 0)])
def test_a_length_that_people_read_is_rewarded(words: int, value: float) -> None:
    assert find_reward("length_sane")([], "word " * words, "") == pytest.approx(value)


@pytest.mark.parametrize(
    ("response", "value"),
    [
        ("Gold rose 2 percent on supply.", 1),
        ("risk risk risk risk", 0),
        ("12 12 12 12 12 12", 0),
        ("Gold rose today. gold ROSE today.", 0.5),
        ("Gold rose", 0),
        ("", 0),
    ],
)
def test_going_round_in_circles_is_not_rewarded(response: str, value: float) -> None:
    assert find_reward("not_repetitive")([], response, "") == value
