"""What a user changes about a training that follows a policy gradient: GRPO, its variants, and PPO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from nvtrader_rl_dagster.nemo_rl.configs.rollout_options import RolloutOptions


class PolicyGradientOptions(RolloutOptions):
    """Clipping and the pull towards the reference policy."""

    option_keys: ClassVar[Mapping[str, str]] = {
        **RolloutOptions.option_keys,
        "loss_fn.reference_policy_kl_penalty": "kl_penalty",
        "loss_fn.ratio_clip_min": "clip_low",
        "loss_fn.ratio_clip_max": "clip_high",
        "loss_fn.ratio_clip_c": "dual_clip",
    }

    kl_penalty: float = Field(
        default=0.01,
        ge=0,
        description="Weight of the KL divergence from the policy at the start. 0 leaves it out, and the reference "
        "policy is not computed.",
    )
    clip_low: float = Field(
        default=0.2, gt=0, lt=1, description="A token's probability ratio counts down to 1 minus this."
    )
    clip_high: float = Field(default=0.2, gt=0, description="A token's probability ratio counts up to 1 plus this.")
    dual_clip: float | None = Field(
        default=None,
        gt=1,
        description="Bounds the loss of a token with a negative advantage to this many times the advantage (dual "
        "clipping); empty: no bound.",
    )
