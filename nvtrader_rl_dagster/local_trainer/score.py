"""Scoring: log-probs of several models on the same preference pairs, and their loss on off-topic texts."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson

from nvtrader_rl_dagster.local_trainer.chat_tokens import tokenize_messages, tokenize_pairs
from nvtrader_rl_dagster.local_trainer.compute import set_up_compute
from nvtrader_rl_dagster.local_trainer.config import ConfigError, Section, load_config
from nvtrader_rl_dagster.local_trainer.console import ProgressLine, say, show_config, warn
from nvtrader_rl_dagster.local_trainer.logprobs import check_packing, group_logprobs
from nvtrader_rl_dagster.local_trainer.models import load_model, resolve_model
from nvtrader_rl_dagster.local_trainer.packing import Group
from nvtrader_rl_dagster.local_trainer.preference_data import PreferencePair, read_rank_file


def run(config_path: Path, overrides: list[str]) -> None:
    """Score ``models`` {name: model} on the rank file ``data_path`` as the YAML says.

    Writes ``<output_dir>/<name>.jsonl`` (one row a pair, in file order) and at the end ``summary.json``
    {name: {pairs, seconds, off_topic_loss}}. A pair that is too long has ``valid`` false and null log-probs;
    a log-prob that is no number is null although the pair is valid.
    """
    config = Section(load_config(config_path, overrides))
    show_config(str(config_path), overrides, config.values)
    models = config.section("models")
    names = [name for name in models.values if models.get(name, str)]
    if not names:
        raise ConfigError("config: 'models' is empty; give at least one name: model.")
    folder = Path(config.get("output_dir", str))
    max_length = config.positive("max_total_sequence_length")
    compute = set_up_compute(config)
    say(f"Scoring {len(names)} models: {compute.describe()}")
    source = config.get("data_path", str)
    pairs = read_rank_file(Path(source))
    folder.mkdir(parents=True, exist_ok=True)
    summary: dict[str, dict[str, Any]] = {}
    done: dict[Path, str] = {}  # the champion of a first round is the base model: score it once
    for name in names:
        path = resolve_model(models.get(name, str)).resolve()
        if path in done:
            say(f"▶ {name}: the same model as {done[path]}")
            _replace(folder / f"{name}.jsonl", (folder / f"{done[path]}.jsonl").read_bytes())
            summary[name] = summary[done[path]] | {"seconds": 0.0}
            continue
        say(f"▶ Scoring {name} ({models.get(name, str)})")
        start = time.perf_counter()
        model, tokenizer = _load(path)
        rows = score_pairs(model, tokenizer, pairs, max_length, compute.pack_tokens, source)
        off_topic = off_topic_loss(model, tokenizer, compute.pack_tokens)
        _replace(folder / f"{name}.jsonl", b"".join(orjson.dumps(row) + b"\n" for row in rows))
        seconds = time.perf_counter() - start
        summary[name] = {"pairs": len(rows), "seconds": seconds, "off_topic_loss": off_topic}
        say(f"  ✓ {name}: {len(rows)} pairs in {seconds:.2f}s, off-topic loss {off_topic:.4f}")
        done[path] = name
    _replace(folder / "summary.json", orjson.dumps(summary, option=orjson.OPT_INDENT_2))


def _load(path: Path) -> tuple[Any, Any]:
    from transformers import AutoTokenizer

    model = load_model(str(path))
    check_packing(model)
    return model, AutoTokenizer.from_pretrained(path, local_files_only=True)


def score_pairs(
    model: Any,
    tokenizer: Any,
    pairs: Sequence[PreferencePair],
    max_length: int,
    budget: int,
    source: str = "",
) -> list[dict[str, Any]]:
    """One row a pair: ids, log-prob sums over the trained tokens of both sides, and how many tokens those are."""
    tokenized = tokenize_pairs(tokenizer, pairs, max_length, source=source)
    groups: list[Group] = [(pair.chosen, pair.rejected) for pair in tokenized if pair.valid]
    progress = ProgressLine("Log-probs", len(groups))
    sums = iter(group_logprobs(model, groups, budget, progress.show))
    rows = []
    for pair, tokens in zip(pairs, tokenized, strict=True):
        chosen, rejected = next(sums) if tokens.valid else (math.nan, math.nan)
        if tokens.valid and not (math.isfinite(chosen) and math.isfinite(rejected)):
            warn(f"{source}:{pair.line}: the log-prob is not finite; the row carries null")
        row = {
            "pair_id": pair.pair_id,
            "prompt_hash": pair.prompt_hash,
            "chosen_logprob": chosen if math.isfinite(chosen) else None,
            "rejected_logprob": rejected if math.isfinite(rejected) else None,
            "chosen_tokens": tokens.chosen.trained_count,
            "rejected_tokens": tokens.rejected.trained_count,
            "valid": tokens.valid,
        }
        rows.append(row)
    return rows


def off_topic_loss(model: Any, tokenizer: Any, budget: int) -> float:
    """Mean negative log-likelihood per token of the answers to fixed general-knowledge questions (nats)."""
    groups: list[Group] = []
    for row in off_topic_texts():
        user, assistant = (
            {"role": "user", "content": row["question"]},
            {"role": "assistant", "content": row["answer"]},
        )
        groups.append((tokenize_messages(tokenizer, [user, assistant]),))
    sums = group_logprobs(model, groups, budget)
    return -math.fsum(row[0] for row in sums) / sum(group[0].trained_count for group in groups)


def off_topic_texts() -> list[dict[str, str]]:
    """The fixed questions and answers."""
    lines = files(__package__).joinpath("off_topic.jsonl").read_bytes().splitlines()
    return [orjson.loads(line) for line in lines]


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)
