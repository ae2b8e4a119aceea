"""Packing and the log-prob core: the packed numbers are the plain numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nvtrader_rl_dagster.local_trainer.chat_tokens import TokenSequence
from nvtrader_rl_dagster.local_trainer.config import ConfigError
from nvtrader_rl_dagster.local_trainer.logprobs import check_packing, group_logprobs, sequence_logprobs
from nvtrader_rl_dagster.local_trainer.packing import pack

tokens = st.lists(st.integers(3, 60), max_size=9).map(tuple)


@st.composite
def groups(draw: Any) -> tuple[TokenSequence, ...]:
    """1 to 3 sequences on a prompt of 1 to 9 tokens; the trained part may start anywhere after the prompt."""
    prompt = (1, *draw(tokens))
    ends = draw(st.lists(tokens.filter(bool), min_size=1, max_size=3))
    return tuple(TokenSequence(prompt + end, len(prompt)) for end in ends)


@torch.no_grad()
def plain_logprob(model: Any, sequence: TokenSequence) -> float:
    logits = model(torch.tensor([sequence.tokens])).logits[0].double()
    logprobs = logits.log_softmax(-1)
    at = range(max(sequence.trained_from, 1), len(sequence.tokens))
    return float(sum(logprobs[i - 1, sequence.tokens[i]] for i in at))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(groups(), min_size=1, max_size=5), st.integers(1, 80))
def test_packed_logprobs_equal_those_of_each_sequence_alone(tiny: Any, batch: list[Any], budget: int) -> None:
    packed = group_logprobs(tiny, batch, budget)
    plain = [[plain_logprob(tiny, sequence) for sequence in group] for group in batch]
    for ours, theirs in zip(packed, plain, strict=True):
        assert ours == pytest.approx(theirs, abs=2e-4)


def test_a_shared_prompt_is_computed_once_and_short_groups_share_a_row() -> None:
    prompt = tuple(range(3, 23))
    group = (TokenSequence((*prompt, 30, 31), 20), TokenSequence((*prompt, 40), 20))
    rows = pack([group, group, group], budget=50)
    assert [len(row.input_ids) for row in rows] == [46, 23]
    assert [row.groups for row in rows] == [(0, 1), (2,)]
    assert rows[1].positions.tolist() == [*range(20), 20, 21, 20]
    # One distribution predicts the first token of both sides, one more the chosen side's second.
    assert rows[1].head_at.tolist() == [19, 20]


def test_a_token_looks_only_at_its_own_prompt_and_branch() -> None:
    group = (TokenSequence((5, 6, 7), 1), TokenSequence((5, 8), 1))
    (row,) = pack([group, group], budget=100)
    assert row.input_ids.tolist() == [5, 6, 7, 8, 5, 6, 7, 8]
    mask = row.attention_mask()[0, 0].int().tolist()
    assert mask == [
        [1, 0, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0, 0],
        [1, 0, 0, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 0, 0, 0],
        [0, 0, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 1, 1, 1, 0],
        [0, 0, 0, 0, 1, 0, 0, 1],
    ]


@torch.no_grad()
def test_another_text_in_one_pair_changes_only_that_pair(tiny: Any) -> None:
    def pair(word: int) -> tuple[TokenSequence, ...]:
        return (TokenSequence((1, word, 10, 11, 12), 3), TokenSequence((1, word, 20, 21), 3))

    (before,) = pack([pair(50), pair(51), pair(52)], budget=100)
    (after,) = pack([pair(50), pair(99), pair(52)], budget=100)
    old, new = sequence_logprobs(tiny, before), sequence_logprobs(tiny, after)
    assert torch.equal(old[[0, 1, 4, 5]], new[[0, 1, 4, 5]])
    assert (old[2:4] != new[2:4]).all()


def test_sides_that_start_alike_give_the_gradient_of_separate_sequences(tiny: Any) -> None:
    # The trained parts share two tokens, so both sides' gradients flow through the common prefix.
    group = (TokenSequence((1, 5, 6, 7, 8, 9), 3), TokenSequence((1, 5, 6, 7, 8, 4, 3), 3))
    weight = torch.tensor([1.0, -0.3])

    def gradient(rows: list[Any]) -> torch.Tensor:
        tiny.zero_grad()
        parts = torch.cat([sequence_logprobs(tiny, row) for row in rows])
        (parts * weight).sum().backward()
        return torch.cat([p.grad.flatten() for p in tiny.parameters()]).clone()

    together = gradient(pack([group], 100))
    apart = gradient(pack([(group[0],), (group[1],)], 1))
    assert torch.linalg.norm(together - apart) < 1e-5 * torch.linalg.norm(apart)
    assert torch.linalg.norm(apart) > 0


def test_an_architecture_that_ignores_the_mask_is_refused(tiny: Any) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, MambaConfig, MambaForCausalLM

    check_packing(tiny)
    check_packing(GPT2LMHeadModel(GPT2Config(n_embd=16, n_head=2, n_layer=1, vocab_size=64)).eval())
    recurrent = MambaForCausalLM(MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=64)).eval()
    with pytest.raises(ConfigError, match="MambaForCausalLM"):
        check_packing(recurrent)
