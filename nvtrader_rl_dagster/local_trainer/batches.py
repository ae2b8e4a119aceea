"""The order of training rows: epochs, full batches, and the position that a checkpoint keeps."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class BatchOrder:
    """Which rows make which batch. Epoch ``e`` is shuffled by ``seed + e``, so no random state needs saving."""

    rows: int
    batch_size: int
    shuffle: bool
    seed: int

    @property
    def batches(self) -> int:
        """Full batches in an epoch; a rest smaller than a batch is left out (NeMo-RL's drop_last)."""
        return self.rows // self.batch_size

    def _permutation(self, epoch: int) -> list[int]:
        if not self.shuffle:
            return list(range(self.rows))
        generator = torch.Generator().manual_seed(self.seed + epoch)
        return torch.randperm(self.rows, generator=generator).tolist()

    def epoch(self, epoch: int) -> list[list[int]]:
        """Row indices of each full batch of an epoch."""
        return self.all_rows(epoch)[: self.batches]

    def all_rows(self, epoch: int) -> list[list[int]]:
        """As ``epoch``, and the left-out rest as a last short batch."""
        order = self._permutation(epoch)
        return [order[at : at + self.batch_size] for at in range(0, self.rows, self.batch_size)]

    def state(self, epoch: int, position: int) -> dict[str, int | bool]:
        """What ``train_dataloader.pt`` keeps; ``position`` counts the batches taken from ``epoch``."""
        return {
            "epoch": epoch,
            "position": position,
            "rows": self.rows,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "seed": self.seed,
        }
