"""Whether an answer is of a length that people read."""

from __future__ import annotations

from collections.abc import Sequence

FEWEST, MOST = 20, 300


def length_sane(prompt: Sequence[dict[str, str]], response: str, ground_truth: str) -> float:
    """1 from 20 to 300 words, falling linearly to 0 at none and at 600.

    It sees the number of words between spaces and nothing else: any filler of that length gets 1, and it is no use for
    languages without spaces. It keeps other rewards from being won by length, and is none to train on alone.
    """
    words = len(response.split())
    if words < FEWEST:
        return words / FEWEST
    return min(1.0, max(0.0, 2 - words / MOST))
