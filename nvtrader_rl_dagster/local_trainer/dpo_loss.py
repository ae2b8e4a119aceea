"""The DPO loss with NeMo-RL's weights and averages (Rafailov et al. 2023, https://arxiv.org/abs/2305.18290)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from nvtrader_rl_dagster.local_trainer.config import Section

METRICS = ("loss", "sft_loss", "preference_loss", "accuracy", "rewards_chosen_mean", "rewards_rejected_mean")
COUNTS = ("num_valid_samples", "global_valid_seqs", "global_valid_toks")


@dataclass(frozen=True)
class DpoLoss:
    """β, the two weights, and whether each term averages over tokens instead of summing."""

    beta: float
    preference_weight: float
    sft_weight: float
    preference_average: bool
    sft_average: bool

    @classmethod
    def from_config(cls, dpo: Section) -> DpoLoss:
        return cls(
            dpo.get("reference_policy_kl_penalty", float),
            dpo.get("preference_loss_weight", float),
            dpo.get("sft_loss_weight", float),
            dpo.get("preference_average_log_probs", bool),
            dpo.get("sft_average_log_probs", bool),
        )

    def __call__(self, policy: Tensor, reference: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Per-pair loss [N] and the per-pair columns of METRICS [N, 6] (detached).

        ``policy`` and ``reference`` are log-prob sums [N, 2] (chosen, rejected), ``counts`` the trained tokens
        [N, 2]. loss = w_p · -log σ(β (r_chosen - r_rejected)) + w_s · NLL(chosen), where the reward r is
        log π - log π_ref of one side; r is reported without β, as NeMo-RL does.
        """
        tokens = counts.clamp(min=1)
        rewards = policy - reference
        if self.preference_average:
            rewards = rewards / tokens
        chosen, rejected = rewards[:, 0], rewards[:, 1]
        preference = -logsigmoid(self.beta * (chosen - rejected))
        sft = torch.zeros_like(preference)
        if self.sft_weight > 0:
            sft = -policy[:, 0] / tokens[:, 0] if self.sft_average else -policy[:, 0]
        loss = self.sft_weight * sft + self.preference_weight * preference
        columns = (loss, sft, preference, (chosen > rejected).to(loss.dtype), chosen, rejected)
        return loss, torch.stack([column.detach() for column in columns], dim=1)


def mean_metrics(columns: Tensor, trained_tokens: int) -> dict[str, float]:
    """The metrics of a set of valid pairs as NeMo-RL names and averages them; all zero without any pair."""
    pairs = columns.shape[0]
    means = columns.double().sum(dim=0) / max(pairs, 1)
    values = dict(zip(METRICS, means.tolist(), strict=True))
    return values | dict(zip(COUNTS, (float(pairs), 2.0 * pairs, float(trained_tokens)), strict=True))
