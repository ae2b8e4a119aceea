"""The benchmarks that NeMo-RL's evaluation has, and the `data` section for them or for a local file.

Source: `examples/configs/evals/` and `nemo_rl/data/datasets/eval_datasets/` of v0.6.0 and v0.7.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nvtrader_rl_dagster.nemo_rl.configs.data import BenchmarkData

#: Prompt file (below NeMo-RL's tree, which is its working directory) and verifier of each; from the hub.
_PROMPTS = "examples/prompts/"
_CHOICE, _ENGLISH_CHOICE = "multilingual_multichoice", "english_multichoice"
_BUILT_IN: dict[str, tuple[str | None, str]] = {
    "aime2024": (None, "math"),
    "aime2025": (None, "math"),
    "aime2026": (None, "math"),
    "math": (f"{_PROMPTS}cot.txt", "math"),
    "math500": (f"{_PROMPTS}cot.txt", "math"),
    "gpqa": (f"{_PROMPTS}gpqa.txt", _CHOICE),
    "gpqa_diamond": (f"{_PROMPTS}gpqa.txt", _CHOICE),
    "mmlu": (f"{_PROMPTS}mmlu.txt", _CHOICE),
    "mmlu_pro": (f"{_PROMPTS}mmlu_pro.txt", _ENGLISH_CHOICE),
}
_ONLY_IN = {"aime2026": "0.7.0"}
_FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json"}


@dataclass(frozen=True)
class Benchmark:
    """section: `data`. verifier: how the math environment reads an answer."""

    section: dict[str, Any]
    verifier: str


def local_benchmark(data: BenchmarkData, *, prompt_file: str, max_sequence_tokens: int) -> Benchmark:
    """A file of problems and solutions. Raises `ValueError`: no rows (`no_rows`), another format (`format`)."""
    if data.rows < 1:
        raise ValueError(f"no_rows: {data.file} holds no problem; write one per row, with {data.problem_key!r}")
    try:
        file_format = _FORMATS[data.file.suffix.lower()]
    except KeyError:
        raise ValueError(
            f"format: {data.file} is neither .csv, .json nor .jsonl; NeMo-RL reads no other benchmark file"
        ) from None
    return Benchmark(
        {
            "max_input_seq_length": max_sequence_tokens,
            "dataset_name": str(data.file),
            "problem_key": data.problem_key,
            "solution_key": data.solution_key,
            "file_format": file_format,
            "split": "train",
            "prompt_file": prompt_file or None,
            "system_prompt_file": None,
        },
        "math",
    )


def built_in_benchmark(name: str, version: str, *, prompt_file: str, max_sequence_tokens: int) -> Benchmark:
    """A benchmark by its name. `mmlu_XX-YY` is MMLU in another language. Raises `ValueError` (`benchmark`)."""
    family = "mmlu" if name.startswith("mmlu_") and name != "mmlu_pro" else name
    there = [each for each in _BUILT_IN if _ONLY_IN.get(each, version) == version]
    if family not in there:
        raise ValueError(
            f"benchmark: NeMo-RL {version} has no benchmark {name!r}; give a file, or one of {', '.join(there)}"
        )
    own_prompt, verifier = _BUILT_IN[family]
    return Benchmark(
        {
            "max_input_seq_length": max_sequence_tokens,
            "dataset_name": name,
            "prompt_file": prompt_file or own_prompt,
            "system_prompt_file": None,
        },
        verifier,
    )
