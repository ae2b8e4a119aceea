"""The statistics behind the gate: valid when nothing was learned, sensible when something was."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_rl_dagster.evaluation.statistics import (
    difference_interval,
    share_interval,
    sign_flip_p_value,
)


def brute_force_p(values: list[float]) -> float:
    observed = sum(values)
    flips = [
        sum(s * v for s, v in zip(signs, values, strict=True))
        for signs in itertools.product((1, -1), repeat=len(values))
    ]
    return sum(f >= observed - 1e-9 for f in flips) / len(flips)


@given(st.lists(st.sampled_from([-0.5, -0.25, 0.0, 0.1, 0.5]), min_size=1, max_size=9))
def test_the_p_value_is_that_of_all_sign_flips(values: list[float]) -> None:
    kept = [v for v in values if v != 0]
    expected = brute_force_p(kept) if kept else 1.0
    assert sign_flip_p_value(values) == pytest.approx(expected)


def test_three_prompts_are_never_enough_for_95_percent() -> None:
    assert sign_flip_p_value([0.5, 0.5, 0.5]) == 0.125


def test_the_random_flips_agree_with_the_exact_answer() -> None:
    values = [0.5] * 15 + [-0.5] * 5
    exact = sum(1 for signs in itertools.product((1, -1), repeat=20) if sum(signs) >= 10) / 2**20
    assert sign_flip_p_value(values) == pytest.approx(exact, abs=0.006)


def test_a_model_that_learned_nothing_passes_at_most_as_often_as_stated() -> None:
    draw = random.Random(1)
    passed = 0
    for trial in range(600):
        wins = [draw.choice((0.5, -0.5)) for _ in range(30)]
        passed += sign_flip_p_value(wins, seed=trial) <= 0.05
    # 5 % of 600 is 30; four standard deviations of the binomial above it is 51.
    assert passed <= 51


def test_many_pairs_of_one_prompt_count_as_one() -> None:
    """Ten pairs that move together are one observation: with three prompts no p value below 1/8 exists."""
    per_prompt = [0.5, 0.5, 0.5]
    assert sign_flip_p_value(per_prompt) > 0.05
    low, high = share_interval([1.0, 1.0, 1.0], 0.95)
    assert low < 0.5 and high == 1.0


@given(st.lists(st.floats(0, 1), max_size=60), st.sampled_from([0.8, 0.95, 0.99]))
def test_the_share_interval_stays_in_bounds_and_never_has_zero_width(shares: list[float], level: float) -> None:
    low, high = share_interval(shares, level)
    assert 0 <= low < high <= 1


def test_the_share_interval_matches_the_published_method_on_a_proportion() -> None:
    # 15 of 50 at 95 %, Agresti-Coull with two successes and two failures: 17/54 ± 1.96 · 0.0632
    low, high = share_interval([1.0] * 15 + [0.0] * 35, 0.95)
    assert (round(low, 3), round(high, 3)) == (0.191, 0.439)


@pytest.mark.parametrize("pairs_per_prompt", [1, 5])
def test_the_share_interval_covers_as_often_as_stated(pairs_per_prompt: int) -> None:
    """Also when the pairs of a prompt are won or lost together, as they are in real feedback."""
    draw = random.Random(2)
    covered = 0
    for _ in range(2000):
        shares = []
        for _ in range(40):
            chance = draw.choice((0.5, 0.9))  # mean 0.7, and prompts differ
            shares.append(sum(draw.random() < chance for _ in range(pairs_per_prompt)) / pairs_per_prompt)
        low, high = share_interval(shares, 0.95)
        covered += low <= 0.7 <= high
    assert 0.92 < covered / 2000 < 0.985


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=60))
def test_the_difference_interval_never_has_zero_width(differences: list[float]) -> None:
    low, high = difference_interval(differences, 0.95)
    assert -1 <= low < high <= 1


def test_the_difference_interval_covers_as_often_as_stated() -> None:
    draw = random.Random(3)
    covered = 0
    for _ in range(2000):
        # candidate wins 80 %, champion 65 %, independently: the true difference is 0.15
        differences = [(draw.random() < 0.80) - (draw.random() < 0.65) for _ in range(60)]
        low, high = difference_interval(differences, 0.95)
        covered += low <= 0.15 <= high
    assert 0.92 < covered / 2000 < 0.985


def test_no_unit_says_nothing() -> None:
    low, high = share_interval([], 0.95)
    assert low < 0.05 and high > 0.95
    assert sign_flip_p_value([]) == 1.0
    assert sign_flip_p_value([0.0, 0.0]) == 1.0
