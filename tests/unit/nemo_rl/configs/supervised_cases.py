"""Builds configurations for tests of trainings on given rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.nemo_rl.configs import BUILDERS, OPTIONS, BuiltConfig, ChatData, PreferenceData, Target

SUPERVISED = ("sft", "dpo", "rm")
VERSIONS = ("0.6.0", "0.7.0")


def rows(algo: str, train: int = 64, held_out: int = 16) -> ChatData | PreferenceData:
    kind = ChatData if algo == "sft" else PreferenceData
    return kind(Path("/data/train.jsonl"), Path("/data/validation.jsonl") if held_out else None, train, held_out)


def built(
    algo: str, *, version: str = "0.6.0", train: int = 64, held_out: int = 16, gpus: int = 1, **options: Any
) -> BuiltConfig:
    chosen = OPTIONS[algo](**{"base_model": "model", **options})
    target = Target(version=version, gpus_per_node=gpus)
    return BUILDERS[algo](chosen, rows(algo, train, held_out), Path("/run/checkpoints"), Path("/run/logs"), target)


def batch_option(algo: str) -> str:
    return "batch_conversations" if algo == "sft" else "batch_pairs"
