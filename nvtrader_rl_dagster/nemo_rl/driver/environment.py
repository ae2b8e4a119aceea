"""The environment `nvtrader`: a Ray actor in NeMo-RL's Python that rewards answers by functions and a reward model."""

from __future__ import annotations

from typing import Any

from nvtrader_rl_dagster.nemo_rl.driver.reward_model import RewardModel
from nvtrader_rl_dagster.nemo_rl.driver.scoring import REWARD_MODEL, Answer, Scoring

_ACTOR = "RewardEnvironment"


class Rewarding:
    """One turn: it rewards the answer and ends the episode. Has the methods of NeMo-RL's `EnvironmentInterface`.

    config: the mapping `env.nvtrader`, see `Scoring.from_config` and `RewardModel.from_config`.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._scoring = Scoring.from_config(config)
        self._model = RewardModel.from_config(config) if REWARD_MODEL in self._scoring.weights else None

    def step(self, message_log_batch: list[list[dict[str, Any]]], metadata: list[dict[str, Any]]) -> Any:
        """Rewards [B], or [B, n] with `multi`. metadata: `ground_truth` and the prompt's messages of each sample."""
        import torch
        from nemo_rl.environments.interfaces import EnvironmentReturn

        answers = [Answer.of(log, info) for log, info in zip(message_log_batch, metadata, strict=True)]
        scores = self._model.scores([answer.conversation for answer in answers]) if self._model else []
        rewards = torch.tensor(self._scoring.rewards(answers, scores))
        return EnvironmentReturn(
            # Nothing to read for the policy: an observation would become tokens of its next turn.
            observations=[{"role": "environment", "content": ""} for _ in answers],
            metadata=metadata,
            next_stop_strings=[None for _ in answers],
            rewards=rewards if self._scoring.multi else rewards.squeeze(1),
            terminateds=torch.ones(len(answers), dtype=torch.bool),
            answers=None,
        )

    def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, float]]:
        return batch, {}

    def shutdown(self) -> None:
        self._model = None


def __getattr__(name: str) -> Any:
    """The actor that NeMo-RL looks up by its name; Ray is loaded then, and not with this module."""
    if name != _ACTOR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import ray

    actor = globals()[name] = ray.remote(Rewarding)
    return actor
