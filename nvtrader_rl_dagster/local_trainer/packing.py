"""Packing: many groups of sequences in one row, each group's common prefix once, a tree mask between branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nvtrader_rl_dagster.local_trainer.chat_tokens import TokenSequence, common_length

Group = tuple[TokenSequence, ...]


@dataclass(frozen=True)
class PackedRow:
    """One forward pass: T tokens of some groups.

    ``input_ids``, ``positions``, ``group_of`` and ``branch_of`` are [T] (branch 0 = the group's common prefix).
    ``head_at`` [H] are the tokens whose next-token distribution is needed. Each of the K targets reads
    distribution ``target_head`` [K] at token ``target_id`` [K] and belongs to sequence ``target_sequence`` [K].
    ``groups`` are the indices of the packed groups in the caller's list, ``sequences`` how many they hold together.
    """

    input_ids: Tensor
    positions: Tensor
    group_of: Tensor
    branch_of: Tensor
    head_at: Tensor
    target_head: Tensor
    target_id: Tensor
    target_sequence: Tensor
    groups: tuple[int, ...]
    sequences: int

    def attention_mask(self) -> Tensor:
        """[1, 1, T, T], True where a token may look: itself, and what is before it in its own sequence."""
        same_group = self.group_of[:, None] == self.group_of[None, :]
        same_sequence = (self.branch_of[None, :] == 0) | (self.branch_of[:, None] == self.branch_of[None, :])
        return (same_group & same_sequence).tril()[None, None]


def _shared_length(group: Group) -> int:
    return common_length(*(sequence.tokens for sequence in group))


def _packed_length(group: Group) -> int:
    shared = _shared_length(group)
    return shared + sum(len(sequence.tokens) - shared for sequence in group)


def pack(groups: Sequence[Group], budget: int) -> list[PackedRow]:
    """Fill rows with groups in their order until ``budget`` tokens; a longer group gets a row of its own."""
    rows: list[PackedRow] = []
    open_groups: list[int] = []
    length = 0
    for index, group in enumerate(groups):
        size = _packed_length(group)
        if open_groups and length + size > budget:
            rows.append(_build(groups, open_groups))
            open_groups, length = [], 0
        open_groups.append(index)
        length += size
    if open_groups:
        rows.append(_build(groups, open_groups))
    return rows


def _build(groups: Sequence[Group], members: Sequence[int]) -> PackedRow:
    ids: list[int] = []
    positions: list[int] = []
    group_of: list[int] = []
    branch_of: list[int] = []
    heads: dict[int, int] = {}  # token in the row -> index in head_at
    targets: list[tuple[int, int, int]] = []
    sequence_index = 0
    for member, group_index in enumerate(members):
        group = groups[group_index]
        shared = _shared_length(group)
        start = len(ids)
        for branch, sequence in enumerate(group):
            # The first sequence writes the common prefix; the others only their own rest.
            offset = len(ids) - shared if branch else start
            begin = shared if branch else 0
            rest = sequence.tokens[begin:]
            ids.extend(rest)
            positions.extend(range(begin, len(sequence.tokens)))
            group_of.extend([member] * len(rest))
            branch_of.extend(0 if at < shared else branch + 1 for at in range(begin, len(sequence.tokens)))
            for at in range(max(sequence.trained_from, 1), len(sequence.tokens)):
                before = at - 1
                row_at = start + before if before < shared else offset + before
                targets.append((heads.setdefault(row_at, len(heads)), sequence.tokens[at], sequence_index))
            sequence_index += 1
    columns = torch.tensor(targets, dtype=torch.long).reshape(-1, 3)
    return PackedRow(
        input_ids=torch.tensor(ids),
        positions=torch.tensor(positions),
        group_of=torch.tensor(group_of),
        branch_of=torch.tensor(branch_of),
        head_at=torch.tensor(list(heads), dtype=torch.long),
        target_head=columns[:, 0],
        target_id=columns[:, 1],
        target_sequence=columns[:, 2],
        groups=tuple(members),
        sequences=sequence_index,
    )
