"""Evaluation: a local file or a benchmark of NeMo-RL, and metrics that make sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rollout_cases import VERSIONS

from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS
from nvtrader_rl_dagster.nemo_rl.configs import BenchmarkData, BuiltConfig, EvalOptions, Target, build_eval_config

FILE = BenchmarkData(Path("/data/problems.csv"), 12, "Question", "Answer")


def built(data: BenchmarkData | None = FILE, *, version: str = "0.6.0", gpus: int = 1, **options: Any) -> BuiltConfig:
    return build_eval_config(
        EvalOptions(**{"base_model": "/models/exported", **options}),
        data,
        Path("/run/checkpoints"),
        Path("/run/logs"),
        Target(version=version, gpus_per_node=gpus),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_local_file_is_read_by_its_columns(version: str) -> None:
    config = built(version=version).config
    assert set(config) == set(ALGOS["eval"].release(version).sections)
    data = config["data"]
    assert (data["dataset_name"], data["file_format"], data["split"]) == ("/data/problems.csv", "csv", "train")
    assert (data["problem_key"], data["solution_key"]) == ("Question", "Answer")


@pytest.mark.parametrize(("name", "file_format"), [("a.json", "json"), ("a.jsonl", "json"), ("a.CSV", "csv")])
def test_the_format_follows_from_the_name(name: str, file_format: str) -> None:
    assert built(BenchmarkData(Path(name), 1)).config["data"]["file_format"] == file_format


def test_the_model_is_the_exported_folder_with_its_own_tokenizer_and_answers_go_to_the_run() -> None:
    run = built()
    assert run.config["generation"]["model_name"] == run.config["tokenizer"]["name"] == "/models/exported"
    assert run.config["eval"]["save_path"] == "/run/logs"
    assert run.steps == 0


@pytest.mark.parametrize(
    ("benchmark", "prompt_file", "verifier"),
    [
        ("math500", "examples/prompts/cot.txt", "math"),
        ("gpqa_diamond", "examples/prompts/gpqa.txt", "multilingual_multichoice"),
        ("mmlu_pro", "examples/prompts/mmlu_pro.txt", "english_multichoice"),
        ("mmlu_DE-DE", "examples/prompts/mmlu.txt", "multilingual_multichoice"),
        ("aime2024", None, "math"),
    ],
)
def test_a_benchmark_comes_with_its_prompt_and_verifier(benchmark: str, prompt_file: str | None, verifier: str) -> None:
    run = built(None, benchmark=benchmark)
    assert run.config["data"]["dataset_name"] == benchmark
    assert run.config["data"]["prompt_file"] == prompt_file
    assert run.config["env"]["math"]["verifier_type"] == verifier
    assert any("hub" in note for note in run.notes)


def test_a_benchmark_of_the_newer_release_is_not_offered_by_the_older() -> None:
    assert built(None, version="0.7.0", benchmark="aime2026").config["data"]["dataset_name"] == "aime2026"
    with pytest.raises(ValueError, match=r"^benchmark: NeMo-RL 0\.6\.0 has no benchmark 'aime2026'"):
        built(None, benchmark="aime2026")


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_said_that_only_solutions_are_compared(version: str) -> None:
    assert any("math environment" in note for note in built(version=version).notes)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"k": 4, "answers_per_prompt": 2, "temperature": 1}, "needs at least 4 answers_per_prompt"),
        ({"answers_per_prompt": 4}, "raise the temperature"),
        ({"answers_per_prompt": 4, "temperature": 1, "overrides": {"generation.top_k": 1}}, "top_k 1"),
        ({"metric": "cons@k", "k": 16, "answers_per_prompt": 64, "temperature": 1}, "all .* ways to take 16"),
        ({"max_new_tokens": 2048}, "leaves no room"),
        ({"tensor_parallel": 2}, "cannot be split"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        built(**options)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "^benchmark: there is no file"),
        (BenchmarkData(Path("a.csv"), 0), "^no_rows: a.csv holds no problem"),
        (BenchmarkData(Path("a.parquet"), 5), r"^format: a\.parquet"),
    ],
)
def test_no_benchmark_is_refused(data: BenchmarkData | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        built(data)


def test_several_answers_are_sampled() -> None:
    run = built(k=4, answers_per_prompt=8, temperature=0.7)
    own = run.config["eval"]
    assert (own["k_value"], own["num_tests_per_prompt"]) == (4, 8)
    assert run.config["generation"]["temperature"] == 0.7
