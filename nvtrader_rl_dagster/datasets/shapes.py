"""One preference pair as a row of each trainer's shape. Text is passed on byte for byte.

A row carries `pair_id`, which all loaders ignore, and never `task_name`, which makes NeMo-RL's
`PreferenceDataset` fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Row = dict[str, Any]
Pair = Mapping[str, Any]


def nemo_rank_row(pair: Pair) -> Row:
    """NeMo-RL `PreferenceDataset`: the completion with the lower rank is preferred."""
    return {
        "context": pair["prompt"],
        "completions": [
            {"rank": 0, "completion": pair["chosen"]},
            {"rank": 1, "completion": pair["rejected"]},
        ],
        "pair_id": pair["pair_id"],
    }


def helpsteer3_row(pair: Pair) -> Row | None:
    """HelpSteer3: `overall_preference` -3..-1 prefers response1, 1..3 response2.

    The preferred side alternates with the pair id, so that position says nothing. A majority vote
    is -1 or 1 (slightly better), an undisputed one -2 or 2 (better); ours has no 'much better'.
    None for a completion of several messages: the shape has one text per response.
    """
    if len(pair["chosen"]) != 1 or len(pair["rejected"]) != 1:
        return None
    chosen, rejected = pair["chosen"][0]["content"], pair["rejected"][0]["content"]
    strength = 2 if pair["weight"] >= 1 else 1
    chosen_first = int(pair["pair_id"][-1], 16) % 2 == 0
    return {
        "context": pair["prompt"],
        "response1": chosen if chosen_first else rejected,
        "response2": rejected if chosen_first else chosen,
        "overall_preference": -strength if chosen_first else strength,
        "pair_id": pair["pair_id"],
    }


def trl_row(pair: Pair) -> Row:
    """TRL explicit-prompt conversational preference row."""
    return {
        "prompt": pair["prompt"],
        "chosen": pair["chosen"],
        "rejected": pair["rejected"],
        "pair_id": pair["pair_id"],
    }


#: Shape name to row builder; a builder returns None for a pair that the shape cannot express.
SHAPES: dict[str, Callable[[Pair], Row | None]] = {
    "nemo_rl": nemo_rank_row,
    "helpsteer3": helpsteer3_row,
    "trl": trl_row,
}


def kto_row(event_id: str, prompt: list[Row], response: list[Row], approved: bool) -> Row:
    """TRL unpaired preference row (KTO) for a decision that no pair could use."""
    return {"prompt": prompt, "completion": response, "label": approved, "event_id": event_id}
