"""Small data sets in the shapes that the bridge writes, with a tiny model to go with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS, DataShape
from nvtrader_rl_dagster.nemo_rl.configs import BenchmarkData, ChatData, PreferenceData, PromptData

TOPICS = ["bonds", "copper", "rates", "oil", "wheat", "gold", "euro", "yen", "credit", "tech"]


def _question(topic: str) -> str:
    return f"What moved {topic} today?"


def _preference(topic: str) -> dict[str, Any]:
    answers = (f"{topic} rose 2 percent on supply.", f"{topic} did something.")
    completions = [
        {"rank": rank, "completion": [{"role": "assistant", "content": answer}]} for rank, answer in enumerate(answers)
    ]
    return {"context": [{"role": "user", "content": _question(topic)}], "completions": completions}


def _chat(topic: str) -> dict[str, Any]:
    return {
        "messages": [
            {"role": "user", "content": _question(topic)},
            {"role": "assistant", "content": f"{topic} rose 2 percent on supply."},
        ]
    }


def _prompt(topic: str) -> dict[str, Any]:
    return {"input": _question(topic), "output": orjson.dumps({"facts": ["2 percent"]}).decode()}


def _problem(number: int) -> dict[str, Any]:
    return {"problem": f"What is {number} + {number}?", "solution": str(2 * number)}


def data_for(algo: str, folder: Path, rows: int = 8, held_out: int = 2) -> Any:
    """The files of an algorithm's data shape; `rows` for training and `held_out` for validation."""
    shape = ALGOS[algo].data
    if shape is DataShape.BENCHMARK:
        file = _write(folder / "problems.jsonl", [_problem(n) for n in range(1, rows + 1)])
        return BenchmarkData(file, rows, "problem", "solution", "v1")
    make = {DataShape.PREFERENCE: _preference, DataShape.CHAT: _chat, DataShape.PROMPTS: _prompt}[shape]
    kind = {DataShape.PREFERENCE: PreferenceData, DataShape.CHAT: ChatData, DataShape.PROMPTS: PromptData}[shape]
    made = [make(f"{TOPICS[n % len(TOPICS)]} {n}") for n in range(rows + held_out)]
    train = _write(folder / "train.jsonl", made[:rows])
    validation = _write(folder / "validation.jsonl", made[rows:])
    return kind(train, validation, rows, held_out, "v1", "ledger", rows + held_out, 0.2)


def _write(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return file
