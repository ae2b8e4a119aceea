"""Whether an answer goes round in circles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

_RUN = 3


def not_repetitive(prompt: Sequence[dict[str, str]], response: str, ground_truth: str) -> float:
    """Share of the runs of three words that stand in the answer only once, whatever their case; 0 below three words.

    It sees repetition inside one answer and nothing else: any fluent text gets 1. Repeated words, sentences and
    digits lower it.
    """
    words = response.lower().split()
    runs = Counter(tuple(words[i : i + _RUN]) for i in range(len(words) - _RUN + 1))
    return sum(times == 1 for times in runs.values()) / runs.total() if runs else 0.0
