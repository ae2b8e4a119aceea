"""The log-prob core: sums of trained-token log-probs of every sequence of a packed row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from nvtrader_rl_dagster.local_trainer.chat_tokens import TokenSequence
from nvtrader_rl_dagster.local_trainer.config import ConfigError
from nvtrader_rl_dagster.local_trainer.packing import Group, PackedRow, pack


def sequence_logprobs(model: Any, row: PackedRow) -> Tensor:
    """Summed log-probs [sequences of the row]; the head runs only where a trained token is predicted.

    ``model`` is a causal language model of transformers that takes a 4-D mask and ``logits_to_keep`` indices.
    """
    logits = model(
        input_ids=row.input_ids[None],
        attention_mask=row.attention_mask(),
        position_ids=row.positions[None],
        logits_to_keep=row.head_at,
        use_cache=False,
    ).logits[0]
    # One fused pass over [H, vocabulary]; logsumexp makes several, forward and backward.
    logprobs = torch.log_softmax(logits, dim=-1)[row.target_head, row.target_id]
    return logprobs.new_zeros(row.sequences).index_add(0, row.target_sequence, logprobs)


@torch.no_grad()
def check_packing(model: Any) -> None:
    """Raise ConfigError unless two short sequences give the same log-probs packed and alone.

    Not every architecture honours a mask and positions of the caller (recurrent ones cannot).
    """
    ids = [identifier % model.config.vocab_size for identifier in (11, 12, 13, 14, 15, 16, 17)]
    group = (TokenSequence(tuple(ids[:5]), 3), TokenSequence((*ids[:3], *ids[5:]), 3))
    kind = type(model).__name__
    try:
        together = group_logprobs(model, [group, group], budget=100)[1]
        apart = [group_logprobs(model, [(sequence,)], budget=100)[0][0] for sequence in group]
    except (TypeError, AttributeError, RuntimeError) as error:
        raise ConfigError(f"{kind}: this architecture cannot be trained by the embedded trainer: {error}") from error
    if max(abs(one - other) for one, other in zip(together, apart, strict=True)) > 1e-2:
        raise ConfigError(f"{kind}: this architecture does not honour the packed attention mask; use another model.")


@torch.no_grad()
def group_logprobs(
    model: Any, groups: Sequence[Group], budget: int, progress: Callable[[int], None] | None = None
) -> list[list[float]]:
    """Log-prob sums of every sequence of every group, without gradient; ``progress`` gets the groups done."""
    results: list[list[float]] = []
    for row in pack(groups, budget):
        values = sequence_logprobs(model, row).tolist()
        for index in row.groups:
            results.append([values.pop(0) for _ in groups[index]])
        if progress is not None:
            progress(len(results))
    return results
