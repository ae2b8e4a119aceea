"""Interval and p value for paired comparisons in which the prompt, not the pair, is the unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

_EXACT_UNITS = 16
_RANDOM_FLIPS = 20_000


def share_interval(shares: Sequence[float], confidence: float) -> tuple[float, float]:
    """Two-sided interval of the mean of per-prompt shares in [0, 1], never of zero width.

    Two won and two lost prompts are added before the usual interval of a mean is taken, as Agresti and
    Coull (1998), Amer. Statistician 52, do for a proportion. The spread is that between prompts, so many
    pairs of one prompt narrow nothing.
    """
    return _mean_interval([*shares, 0.0, 0.0, 1.0, 1.0], confidence, 0.0, 1.0)


def difference_interval(differences: Sequence[float], confidence: float) -> tuple[float, float]:
    """Two-sided interval of a mean of per-prompt differences in [-1, 1], never of zero width.

    Adds half a unit to each of the four outcomes of a paired comparison, as Agresti and Min (2005),
    Statistics in Medicine 24, do for paired proportions.
    """
    half = math.sqrt(0.5)  # two units whose squares add up to one
    return _mean_interval([*differences, half, -half], confidence, -1.0, 1.0)


def _mean_interval(values: Sequence[float], confidence: float, low: float, high: float) -> tuple[float, float]:
    """Normal interval of a mean, cut to the range of the values."""
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
    half = NormalDist().inv_cdf(0.5 + confidence / 2) * math.sqrt(variance / len(values))
    return max(low, mean - half), min(high, mean + half)


def sign_flip_p_value(differences: Sequence[float], seed: int = 0) -> float:
    """One-sided p value of 'the mean is above zero' by flipping the sign of each prompt's difference.

    Valid at any sample size when a difference is as likely as its negative under the null. Exact up to
    16 non-zero differences, else 20,000 seeded random flips with the observed one counted in, which
    keeps the test valid. Source: Phipson and Smyth (2010), Stat. Appl. Genet. Mol. Biol. 9.
    """
    import numpy as np  # late: the code location loads this module

    values = np.asarray([d for d in differences if d != 0], dtype=np.float64)
    if values.size == 0:
        return 1.0
    observed = values.sum()
    # Rounding must not make a flip that equals the observed one look smaller.
    threshold = observed - 1e-9 * np.abs(values).sum()
    if values.size <= _EXACT_UNITS:
        bits = (np.arange(2**values.size)[:, None] >> np.arange(values.size)) & 1
        return float(np.mean((1 - 2 * bits) @ values >= threshold))
    random = np.random.default_rng(seed)
    reached = 0
    for start in range(0, _RANDOM_FLIPS, 1000):
        signs = random.integers(0, 2, size=(min(1000, _RANDOM_FLIPS - start), values.size)) * 2 - 1
        reached += int(np.count_nonzero(signs @ values >= threshold))
    return (reached + 1) / (_RANDOM_FLIPS + 1)
