"""The rewards that a configuration can name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

from nvtrader_rl_dagster.rewards.length import length_sane
from nvtrader_rl_dagster.rewards.repetition import not_repetitive

#: `(prompt, response, ground_truth) -> 0..1`. prompt: chat messages with `role` and `content`. ground_truth: the
#: `output` of the prompt's row, which may be a rubric as JSON text.
Reward = Callable[[Sequence[dict[str, str]], str, str], float]

REWARDS: dict[str, Reward] = {"length_sane": length_sane, "not_repetitive": not_repetitive}


def find_reward(name: str) -> Reward:
    """A reward by its name here, or one of a user's own by its dotted path `package.module.function`.

    Raises `ValueError` that says what there is, or why the import failed.
    """
    if name in REWARDS:
        return REWARDS[name]
    module, _, function = name.rpartition(".")
    if not module:
        raise ValueError(
            f"unknown reward {name!r}; there are: {', '.join(sorted(REWARDS))}, or the dotted path of a function of "
            "yours (package.module.function)"
        )
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"reward {name!r} cannot be loaded: {error}") from error
    if not callable(found):
        raise ValueError(f"reward {name!r} is no function but {type(found).__name__}")
    reward: Reward = found
    return reward
