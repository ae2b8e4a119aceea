"""The keys that NeMo-RL's YAML can have, by release and section: `known_keys.json`, made from its types and references.

A kind is one of `bool int float str list map open`, several joined by `|`, with `null` where null is allowed. `open`
takes any keys below it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import orjson

from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS

_KINDS: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "list": (list,),
    "map": (dict,),
    "null": (type(None),),
}

#: Sections with the keys of another.
_LIKE = {"teacher": "policy", "value": "policy"}
#: Keys of the policy that only trainings with rollouts have.
_ROLLOUT = ("policy.generation", "policy.draft")


@dataclass(frozen=True)
class KnownKeys:
    """kinds: dotted key to kind, for one algorithm in one release."""

    kinds: dict[str, str]

    def kind(self, key: str) -> str | None:
        """The kind of a key; `open` below an open one; None when NeMo-RL does not know it."""
        if key in self.kinds:
            return self.kinds[key]
        parts = key.split(".")
        above = (".".join(parts[:n]) for n in range(len(parts) - 1, 0, -1))
        return "open" if any("open" in self.kinds.get(name, "").split("|") for name in above) else None

    def nearest(self, key: str, also: Mapping[str, str]) -> str:
        """The known key that looks most like an unknown one; of those with the same last part, if there are any.

        also: other names that may be meant, and the key of each.
        """
        meant = {name: name for name in self.kinds if "." in name} | dict(also)
        leaf = key.rpartition(".")[2]
        same = [name for name in meant if name.rpartition(".")[2] == leaf]
        return meant[difflib.get_close_matches(key, same or meant, n=1, cutoff=0.0)[0]]


@cache
def known_keys(algo: str, version: str) -> KnownKeys:
    """All keys of an algorithm's YAML in one release. Raises `ValueError` for an unsupported release."""
    sections = ALGOS[algo].release(version).sections
    text = resources.files(__package__).joinpath("known_keys.json").read_bytes()
    by_section: dict[str, dict[str, str]] = orjson.loads(text)[version]
    kinds: dict[str, str] = {}
    for section in sections:
        own = by_section.get(f"{algo}:{section}") or by_section[_LIKE.get(section, section)]
        for below, kind in own.items():
            kinds[f"{section}.{below}" if below else section] = kind
    if "loss_fn" not in sections:
        kinds = {key: kind for key, kind in kinds.items() if not key.startswith(_ROLLOUT)}
    return KnownKeys(kinds)


def fits(value: Any, kind: str) -> bool:
    """Whether a value is of a kind. A bool is no number."""
    kinds = kind.split("|")
    if "open" in kinds:
        return True
    if isinstance(value, bool):
        return "bool" in kinds
    return any(isinstance(value, _KINDS[name]) for name in kinds)
