"""Streams a file of preference pairs into the train and validation files of one shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from nvtrader_rl_dagster.datasets.shapes import Pair, Row
from nvtrader_rl_dagster.datasets.split import VALIDATION_FRACTION, split_of

TRAIN, VALIDATION = "train.jsonl", "validation.jsonl"


@dataclass(frozen=True)
class Conversion:
    """What a conversion wrote: rows per side, prompts per side, and pairs the shape cannot express."""

    train: int
    validation: int
    train_prompts: int
    validation_prompts: int
    not_expressible: int

    @property
    def pairs(self) -> int:
        """Pairs read: every one of them is on a side or counted as not expressible."""
        return self.train + self.validation + self.not_expressible


def convert_pairs(
    pairs_file: Path,
    out: Path,
    to_row: Callable[[Pair], Row | None],
    validation_fraction: float = VALIDATION_FRACTION,
) -> Conversion:
    """Write `out/train.jsonl` and `out/validation.jsonl` from `pairs_file`.

    Pairs of one prompt stand together in the file (the pair builder sorts by prompt), so memory does
    not grow with it. Raises `ValueError` naming file and line for a line that is not a pair.
    """
    rows = {"train": 0, "validation": 0}
    prompts = {"train": 0, "validation": 0}
    not_expressible, previous, side = 0, "", "train"
    with (out / TRAIN).open("wb") as train, (out / VALIDATION).open("wb") as validation:
        files = {"train": train, "validation": validation}
        for pair in read_pairs(pairs_file):
            row = to_row(pair)
            if row is None:
                not_expressible += 1
                continue
            if pair["prompt_hash"] != previous:
                previous = pair["prompt_hash"]
                side = split_of(previous, validation_fraction)
                prompts[side] += 1
            files[side].write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
            rows[side] += 1
    return Conversion(rows["train"], rows["validation"], prompts["train"], prompts["validation"], not_expressible)


def read_pairs(pairs_file: Path) -> Iterator[dict[str, Any]]:
    """Pairs of a pairs file, one at a time."""
    with pairs_file.open("rb") as source:
        for number, line in enumerate(source, 1):
            try:
                pair = orjson.loads(line)
                pair["prompt_hash"], pair["pair_id"]
            except (orjson.JSONDecodeError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{pairs_file}:{number}: not a preference pair ({error}); materialize preference_pairs again"
                ) from error
            yield pair
