"""Held-out scores of base, candidate and champion on the same pairs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from nvtrader_rl_dagster.evaluation.statistics import (
    difference_interval,
    share_interval,
    sign_flip_p_value,
)


@dataclass(frozen=True)
class PairScore:
    """Log-probabilities of both answers of one pair under one model, summed over answer tokens (nats)."""

    chosen: float
    rejected: float
    chosen_tokens: int
    rejected_tokens: int

    @property
    def finite(self) -> bool:
        return math.isfinite(self.chosen) and math.isfinite(self.rejected)


Scores = Mapping[str, PairScore]


@dataclass(frozen=True)
class ModelResult:
    """One trained model against the base. Shares are in [0, 1], log-probabilities in nats.

    `accuracy` is the share of held-out pairs whose implicit reward, log p(model) - log p(base), is
    higher for the chosen answer (Rafailov et al. 2023, eq. 5), averaged within each prompt, then over
    prompts. `p_value`: one-sided, against an accuracy of one half.
    """

    accuracy: float
    interval: tuple[float, float]
    p_value: float
    pair_accuracy: float
    margin: float
    accuracy_chosen_longer: float | None
    accuracy_chosen_not_longer: float | None
    length_normalised_accuracy: float
    chosen_shift_per_token: float
    not_finite: int


@dataclass(frozen=True)
class Comparison:
    """Candidate minus champion: the difference of accuracies, prompt by prompt."""

    difference: float
    interval: tuple[float, float]
    p_value: float


@dataclass(frozen=True)
class Evaluation:
    """Everything measured on one held-out set."""

    pairs: int
    prompts: int
    not_scored: int
    confidence: float
    candidate: ModelResult
    champion: ModelResult | None
    against_champion: Comparison | None
    base_length_normalised_accuracy: float
    base_raw_accuracy: float
    longer_wins_accuracy: float
    off_topic_loss: dict[str, float]


def evaluate(
    base: Scores,
    candidate: Scores,
    champion: Scores | None,
    prompt_of: Mapping[str, str],
    off_topic_loss: Mapping[str, float],
    confidence: float = 0.95,
) -> Evaluation:
    """Compare on the pairs that every model scored; `prompt_of` maps a pair id to its prompt.

    Raises `ValueError` when no pair is left: an evaluation without a measurement is no evaluation.
    """
    models = [base, candidate, *([champion] if champion is not None else [])]
    common = [p for p in prompt_of if all(p in m for m in models) and base[p].finite]
    if not common:
        raise ValueError("no held-out pair was scored by every model; nothing can be compared")
    wins = _by_prompt(common, prompt_of, lambda p: _win(_margin(candidate, base, p)))
    compared = None
    if champion is not None:
        champion_wins = _by_prompt(common, prompt_of, lambda p: _win(_margin(champion, base, p)))
        differences = [wins[prompt] - champion_wins[prompt] for prompt in wins]
        compared = Comparison(
            _mean(differences),
            difference_interval(differences, confidence),
            sign_flip_p_value(differences),
        )
    return Evaluation(
        pairs=len(common),
        prompts=len(wins),
        not_scored=len(prompt_of) - len(common),
        confidence=confidence,
        candidate=_result(candidate, base, common, prompt_of, confidence),
        champion=None if champion is None else _result(champion, base, common, prompt_of, confidence),
        against_champion=compared,
        base_length_normalised_accuracy=_length_normalised(base, common),
        base_raw_accuracy=_mean(_win(base[p].chosen - base[p].rejected) for p in common),
        longer_wins_accuracy=_mean(_win(base[p].chosen_tokens - base[p].rejected_tokens) for p in common),
        off_topic_loss=dict(off_topic_loss),
    )


def _result(
    model: Scores, base: Scores, pairs: list[str], prompt_of: Mapping[str, str], confidence: float
) -> ModelResult:
    won = {p: _win(_margin(model, base, p)) for p in pairs}
    per_prompt = list(_by_prompt(pairs, prompt_of, won.__getitem__).values())
    accuracy = _mean(per_prompt)
    longer = [won[p] for p in pairs if base[p].chosen_tokens > base[p].rejected_tokens]
    others = [won[p] for p in pairs if base[p].chosen_tokens <= base[p].rejected_tokens]
    finite = [p for p in pairs if model[p].finite]
    return ModelResult(
        accuracy=accuracy,
        interval=share_interval(per_prompt, confidence),
        p_value=sign_flip_p_value([share - 0.5 for share in per_prompt]),
        pair_accuracy=_mean(won.values()),
        margin=_mean(_margin(model, base, p) for p in finite) if finite else 0.0,
        accuracy_chosen_longer=_mean(longer) if longer else None,
        accuracy_chosen_not_longer=_mean(others) if others else None,
        length_normalised_accuracy=_length_normalised(model, pairs),
        chosen_shift_per_token=(
            _mean((model[p].chosen - base[p].chosen) / max(1, base[p].chosen_tokens) for p in finite) if finite else 0.0
        ),
        not_finite=len(pairs) - len(finite),
    )


def _margin(model: Scores, base: Scores, pair: str) -> float:
    m, b = model[pair], base[pair]
    return (m.chosen - b.chosen) - (m.rejected - b.rejected)


def _win(margin: float) -> float:
    """1 for a win, one half for a tie; a margin that is not a number is a loss."""
    if math.isnan(margin):
        return 0.0
    return 0.5 if margin == 0 else float(margin > 0)


def _length_normalised(model: Scores, pairs: list[str]) -> float:
    return _mean(
        _win(model[p].chosen / max(1, model[p].chosen_tokens) - model[p].rejected / max(1, model[p].rejected_tokens))
        for p in pairs
    )


def _by_prompt(pairs: list[str], prompt_of: Mapping[str, str], value: Callable[[str], float]) -> dict[str, float]:
    grouped: dict[str, list[float]] = defaultdict(list)
    for pair in pairs:
        grouped[prompt_of[pair]].append(value(pair))
    return {prompt: _mean(values) for prompt, values in grouped.items()}


def _mean(values: Iterable[float]) -> float:
    kept = list(values)
    return math.fsum(kept) / len(kept)


def read_scores(path: Path) -> dict[str, PairScore]:
    """Scores that the embedded trainer wrote, without the pairs it had to mask (too long)."""
    scores = {}
    for line in path.read_bytes().splitlines():
        row = orjson.loads(line)
        if row["valid"]:
            # A log-probability that is no number travels as null in JSON.
            chosen, rejected = row["chosen_logprob"], row["rejected_logprob"]
            scores[row["pair_id"]] = PairScore(
                math.nan if chosen is None else chosen,
                math.nan if rejected is None else rejected,
                row["chosen_tokens"],
                row["rejected_tokens"],
            )
    return scores


def prompts_by_pair(dataset: Path) -> dict[str, str]:
    """Pair id to prompt (its canonical JSON) for a NeMo rank file."""
    prompts = {}
    with dataset.open("rb") as source:
        for line in source:
            row = orjson.loads(line)
            prompts[row["pair_id"]] = orjson.dumps(row["context"], option=orjson.OPT_SORT_KEYS).decode()
    return prompts
