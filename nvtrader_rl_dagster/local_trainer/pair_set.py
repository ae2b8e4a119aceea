"""Tokenised pairs with their reference log-probs, and the forward pass that training and validation share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from nvtrader_rl_dagster.local_trainer.chat_tokens import TokenizedPair
from nvtrader_rl_dagster.local_trainer.console import ProgressLine
from nvtrader_rl_dagster.local_trainer.dpo_loss import METRICS, DpoLoss
from nvtrader_rl_dagster.local_trainer.logprobs import sequence_logprobs
from nvtrader_rl_dagster.local_trainer.packing import pack


class PairSet:
    """N pairs; ``counts`` [N, 2] trained tokens, ``reference`` [N, 2] log-prob sums (NaN until computed)."""

    def __init__(self, name: str, pairs: Sequence[TokenizedPair]) -> None:
        self.name = name
        self.pairs = pairs
        self.counts = torch.tensor([[p.chosen.trained_count, p.rejected.trained_count] for p in pairs])
        self.reference = torch.full((len(pairs), 2), float("nan"))

    def __len__(self) -> int:
        return len(self.pairs)

    def valid(self, rows: Sequence[int]) -> list[int]:
        """Those of ``rows`` that are not masked out."""
        return [row for row in rows if self.pairs[row].valid]

    def trained_tokens(self, rows: Sequence[int]) -> int:
        """Trained tokens of both sides of ``rows``."""
        return int(self.counts[list(rows)].sum())

    def forward(self, model: Any, rows: Sequence[int], budget: int) -> Iterator[tuple[list[int], Tensor]]:
        """For each packed row in turn: the pairs in it and their log-prob sums [n, 2]."""
        for packed in pack([(self.pairs[row].chosen, self.pairs[row].rejected) for row in rows], budget):
            yield [rows[index] for index in packed.groups], sequence_logprobs(model, packed).reshape(-1, 2)


@torch.no_grad()
def compute_reference(model: Any, work: Sequence[tuple[PairSet, Sequence[Sequence[int]]]], budget: int) -> None:
    """Fill ``reference`` for the valid pairs of each set's batches.

    Each batch is packed as ``run_batch`` packs it, so that policy and reference start bit-equal.
    """
    progress = ProgressLine("Reference log-probs", sum(len(p.valid(batch)) for p, batches in work for batch in batches))
    done = 0
    for pairs, batches in work:
        for batch in batches:
            for members, sums in pairs.forward(model, pairs.valid(batch), budget):
                pairs.reference[members] = sums
                done += len(members)
                progress.show(done)


def run_batch(model: Any, pairs: PairSet, rows: Sequence[int], loss: DpoLoss, budget: int, *, train: bool) -> Tensor:
    """Metric columns [n, 6] of the valid pairs among ``rows``; with ``train`` their mean loss's gradient is added up.

    The mean is over all n pairs whatever the packing, as NeMo-RL normalises by the global number of sequences.
    """
    valid = pairs.valid(rows)
    columns = [torch.empty(0, len(METRICS))]
    with torch.set_grad_enabled(train):
        for members, sums in pairs.forward(model, valid, budget):
            per_pair, values = loss(sums, pairs.reference[members], pairs.counts[members])
            if train:
                (per_pair.sum() / len(valid)).backward()
            columns.append(values)
    return torch.cat(columns)
