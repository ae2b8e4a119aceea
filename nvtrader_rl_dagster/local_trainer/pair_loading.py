"""The training set and the validation sets out of the section ``data``."""

from __future__ import annotations

from typing import Any

from nvtrader_rl_dagster.local_trainer.chat_tokens import tokenize_pairs
from nvtrader_rl_dagster.local_trainer.config import Section
from nvtrader_rl_dagster.local_trainer.console import say
from nvtrader_rl_dagster.local_trainer.pair_set import PairSet
from nvtrader_rl_dagster.local_trainer.preference_data import read_pairs


def load_pair_sets(
    data: Section, tokenizer: Any, max_length: int, template_kwargs: dict[str, Any]
) -> tuple[PairSet, dict[str, PairSet]]:
    """Training pairs, and validation pairs by set name, read, checked and tokenised.

    ``val_data_paths`` {name: path} wins over ``validation`` (whose set is called "default"); both may be absent.
    """

    def load(name: str, block: Section) -> PairSet:
        pairs = read_pairs(block)
        source = block.get("data_path", str)
        return PairSet(name, tokenize_pairs(tokenizer, pairs, max_length, template_kwargs, source))

    default = data.section("default", optional=True).values
    say("\n▶ Setting up data...")
    train = load("train", _with_defaults(data.section("train"), default))
    say(f"  ✓ Training dataset loaded with {len(train)} samples.")
    validation: dict[str, PairSet] = {}
    paths = data.section("val_data_paths", optional=True)
    for name in paths.values:
        block = {"dataset_name": "PreferenceDataset", "data_path": paths.get(name, str)}
        validation[name] = load(name, Section(block, paths.dotted(name)))
        say(f"  ✓ Validation dataset '{name}' loaded with {len(validation[name])} samples.")
    if not validation and data.values.get("validation") is not None:
        validation["default"] = load("default", _with_defaults(data.section("validation"), default))
        say(f"  ✓ Validation dataset loaded with {len(validation['default'])} samples.")
    return train, validation


def _with_defaults(block: Section, default: dict[str, Any]) -> Section:
    return Section(default | block.values, block.path)
