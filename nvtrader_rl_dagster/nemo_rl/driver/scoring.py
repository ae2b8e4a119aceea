"""What the environment `nvtrader` makes of an answer, by its configuration. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nvtrader_rl_dagster.nemo_rl.driver.prompts import PROMPT_KEY
from nvtrader_rl_dagster.rewards import Reward, find_reward

#: Stands among the rewards for the score of the reward model.
REWARD_MODEL = "reward_model"


@dataclass(frozen=True)
class Answer:
    """prompt: the chat messages before it. ground_truth: the `output` of the prompt's row."""

    prompt: list[dict[str, str]]
    response: str
    ground_truth: str

    @classmethod
    def of(cls, message_log: Sequence[Mapping[str, Any]], info: Mapping[str, Any] | None) -> Answer:
        """From NeMo-RL's message log, whose last assistant message is the answer.

        Without the driver's processors the prompt is the log's own text, with the chat template in it.
        """
        info = info or {}
        last = max(i for i, message in enumerate(message_log) if message["role"] == "assistant")
        shown = [{"role": str(m["role"]), "content": str(m["content"])} for m in message_log[:last]]
        return cls(
            prompt=list(info.get(PROMPT_KEY) or shown),
            response=str(message_log[last]["content"]),
            ground_truth=str(info.get("ground_truth", "")),
        )

    @property
    def conversation(self) -> list[dict[str, str]]:
        return [*self.prompt, {"role": "assistant", "content": self.response}]


@dataclass(frozen=True)
class Scoring:
    """weights: by reward, in the order of the columns. multi: one column per reward, for GDPO, which normalizes each
    of them, so that weights do not count there; else their weighted mean."""

    weights: dict[str, float]
    multi: bool
    functions: dict[str, Reward]

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Scoring:
        """From `{rewards: {name: weight}, multi: bool, reward_model: folder or null}`.

        A reward model counts with weight 1 unless `rewards.reward_model` says otherwise. Raises `ValueError` that
        names the key.
        """
        weights = {str(name): weight for name, weight in (config.get("rewards") or {}).items()}
        if config.get(REWARD_MODEL):
            weights.setdefault(REWARD_MODEL, 1.0)
        elif REWARD_MODEL in weights:
            raise ValueError("env.nvtrader.rewards.reward_model has a weight, but env.nvtrader.reward_model no folder")
        if not weights:
            raise ValueError("env.nvtrader.rewards is empty and there is no reward_model: name what is to be rewarded")
        for name, weight in weights.items():
            if not isinstance(weight, (int, float)) or not math.isfinite(weight) or weight <= 0:
                raise ValueError(f"env.nvtrader.rewards.{name}: {weight!r} must be a number above 0")
        multi = bool(config.get("multi", False))
        if multi and len(weights) < 2:
            raise ValueError("env.nvtrader.multi needs two rewards or more: GDPO refuses a single one")
        functions = {name: find_reward(name) for name in weights if name != REWARD_MODEL}
        return cls(weights, multi, functions)

    def rewards(self, answers: Sequence[Answer], model_scores: Sequence[float] = ()) -> list[list[float]]:
        """One row per answer and one column per reward, or a single column when they are averaged.

        model_scores: what the reward model says about each answer, in 0..1, if there is one. Raises `ValueError` for
        one that is not in 0..1.
        """
        rows = []
        for number, answer in enumerate(answers):
            row = {
                name: _checked(name, self._value(name, answer, number, model_scores), answer) for name in self.weights
            }
            rows.append(list(row.values()) if self.multi else [self._mean(row)])
        return rows

    def _value(self, name: str, answer: Answer, number: int, model_scores: Sequence[float]) -> float:
        if name == REWARD_MODEL:
            return model_scores[number]
        return self.functions[name](answer.prompt, answer.response, answer.ground_truth)

    def _mean(self, row: Mapping[str, float]) -> float:
        return sum(self.weights[name] * value for name, value in row.items()) / sum(self.weights.values())

    def __str__(self) -> str:
        named = [name if self.multi else f"{name} x {weight:g}" for name, weight in self.weights.items()]
        return f"rewards: {', '.join(named)} ({'each for itself' if self.multi else 'weighted mean'})"


def _checked(name: str, value: float, answer: Answer) -> float:
    if not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"reward {name} returned {value!r} for {answer.response[:200]!r}; it must be a number in 0..1")
    return float(value)
