"""The DPO loss against a plain per-pair formula, and ln 2 at the start."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nvtrader_rl_dagster.local_trainer.chat_tokens import tokenize_pairs
from nvtrader_rl_dagster.local_trainer.dpo_loss import DpoLoss, mean_metrics
from nvtrader_rl_dagster.local_trainer.pair_set import PairSet, compute_reference, run_batch
from nvtrader_rl_dagster.local_trainer.preference_data import PreferencePair


def plain_loss(loss: DpoLoss, policy: list[float], reference: list[float], counts: list[int]) -> tuple[float, ...]:
    """One pair, straight from the formula."""
    rewards = [p - r for p, r in zip(policy, reference, strict=True)]
    if loss.preference_average:
        rewards = [reward / count for reward, count in zip(rewards, counts, strict=True)]
    preference = math.log1p(math.exp(-loss.beta * (rewards[0] - rewards[1])))
    sft = 0.0
    if loss.sft_weight > 0:
        sft = -policy[0] / (counts[0] if loss.sft_average else 1)
    return loss.preference_weight * preference + loss.sft_weight * sft, sft, preference, *rewards


@pytest.mark.parametrize("preference_average", [False, True])
@pytest.mark.parametrize("sft_average", [False, True])
@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.7, 0.25)])
def test_each_term_matches_the_plain_formula(
    preference_average: bool, sft_average: bool, weights: tuple[float, float]
) -> None:
    loss = DpoLoss(0.3, *weights, preference_average, sft_average)
    policy, reference = [[-31.0, -40.5], [-12.0, -11.0]], [[-33.5, -38.0], [-12.5, -13.0]]
    counts = [[10, 14], [3, 2]]
    per_pair, columns = loss(torch.tensor(policy), torch.tensor(reference), torch.tensor(counts))
    for row in range(2):
        total, sft, preference, chosen, rejected = plain_loss(loss, policy[row], reference[row], counts[row])
        assert float(per_pair[row]) == pytest.approx(total, rel=1e-5)
        expected = [total, sft, preference, float(chosen > rejected), chosen, rejected]
        assert columns[row].tolist() == pytest.approx(expected, rel=1e-5)


def test_metrics_are_means_over_pairs_and_counts_are_named_as_nemo_rl_does() -> None:
    metrics = mean_metrics(torch.tensor([[1.0, 0, 1, 1, 2, -1], [3.0, 0, 3, 0, -2, 1]]), trained_tokens=37)
    assert metrics["loss"] == 2.0
    assert metrics["accuracy"] == 0.5
    assert (metrics["num_valid_samples"], metrics["global_valid_seqs"], metrics["global_valid_toks"]) == (
        2,
        4,
        37,
    )


text = st.text(st.characters(codec="utf-8"), max_size=60)
message = st.builds(lambda content: {"role": "assistant", "content": content}, text)


@st.composite
def pairs(draw: Any) -> PreferencePair:
    context = [
        {"role": role, "content": draw(text)}
        for role in draw(st.lists(st.sampled_from(["user", "assistant", "system"]), max_size=3))
    ]
    return PreferencePair(context, [draw(message)], [draw(message)], None, None, 1)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(pairs(), min_size=1, max_size=6), st.sampled_from([1, 60, 768]), st.booleans())
def test_the_first_loss_is_ln_2_on_any_text(
    tiny: Any, tokenizer: Any, rows: list[PreferencePair], budget: int, average: bool
) -> None:
    table = PairSet("any", tokenize_pairs(tokenizer, rows, max_length=4096))
    batch = list(range(len(table)))
    compute_reference(tiny, [(table, [batch])], budget)
    loss = DpoLoss(0.1, 1.0, 0.0, average, average)
    for train in (False, True):
        columns = run_batch(tiny, table, batch, loss, budget, train=train)
        metrics = mean_metrics(columns, 0)
        assert len(columns) == len(rows)
        assert metrics["loss"] == pytest.approx(math.log(2), abs=1e-7)
        # Exactly zero: policy and reference come out of the same code on the same packed rows.
        assert (metrics["accuracy"], metrics["rewards_chosen_mean"], metrics["rewards_rejected_mean"]) == (
            0,
            0,
            0,
        )


def test_the_gradient_does_not_depend_on_the_packing(tiny: Any, tokenizer: Any) -> None:
    def answer(text: str) -> list[dict[str, str]]:
        return [{"role": "assistant", "content": text}]

    questions = [[{"role": "user", "content": f"Plan {n}?"}] for n in range(5)]
    rows = [PreferencePair(q, answer("Sell " * n), answer("Hold."), None, None, n) for n, q in enumerate(questions, 1)]
    gradients = []
    for budget in (1, 90, 5000):
        table = PairSet("train", tokenize_pairs(tokenizer, rows, max_length=4096))
        table.reference[:] = torch.tensor([-40.0, -30.0])
        tiny.zero_grad()
        run_batch(tiny, table, range(5), DpoLoss(0.1, 1.0, 0.2, False, True), budget, train=True)
        gradients.append(torch.cat([p.grad.flatten() for p in tiny.parameters()]).clone())
    for gradient in gradients[1:]:
        assert torch.linalg.norm(gradient - gradients[0]) < 1e-5 * torch.linalg.norm(gradients[0])
