"""Interval and p value for paired comparisons in which the prompt, not the pair, is the unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

_EXACT_UNITS = 16
_RANDOM_FLIPS = 20_000


def wilson_interval(share: float, units: int, confidence: float) -> tuple[float, float]:
    """Two-sided score interval of a share over `units` independent units, within [0, 1].

    A prompt's share of won pairs is one unit, whatever its number of pairs: its variance is at most
    that of a coin, so the interval is never too narrow. Source: Wilson (1927), J. Amer. Stat. Assoc. 22.
    """
    if units < 1:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    centre = (share + z * z / (2 * units)) / (1 + z * z / units)
    half = z / (1 + z * z / units) * math.sqrt(share * (1 - share) / units + z * z / (4 * units * units))
    return max(0.0, centre - half), min(1.0, centre + half)


def difference_interval(differences: Sequence[float], confidence: float) -> tuple[float, float]:
    """Two-sided interval of a mean of per-prompt differences in [-1, 1], never of zero width.

    Adds half a unit to each of the four outcomes of a paired comparison, as Agresti and Min (2005),
    Statistics in Medicine 24, do for paired proportions.
    """
    units = len(differences) + 2
    total = math.fsum(differences)
    squares = math.fsum(d * d for d in differences) + 1.0
    mean = total / units
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    half = z * math.sqrt(max(0.0, squares / units - mean * mean) / units)
    return max(-1.0, mean - half), min(1.0, mean + half)


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
