"""Evaluation: options, and the YAML for `run_eval.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from nvtrader_rl_dagster.nemo_rl.configs.base_model import resolve_base_model
from nvtrader_rl_dagster.nemo_rl.configs.benchmarks import built_in_benchmark, local_benchmark
from nvtrader_rl_dagster.nemo_rl.configs.built import BuiltConfig
from nvtrader_rl_dagster.nemo_rl.configs.data import BenchmarkData
from nvtrader_rl_dagster.nemo_rl.configs.generation import generation_section
from nvtrader_rl_dagster.nemo_rl.configs.options import ConfigOptions
from nvtrader_rl_dagster.nemo_rl.configs.overrides import finished, take_overrides
from nvtrader_rl_dagster.nemo_rl.configs.sections import cluster_section, tokenizer_section
from nvtrader_rl_dagster.nemo_rl.configs.target import Target

#: cons@k votes in every subset of k answers; NeMo-RL goes through them one by one, for each prompt.
_MOST_SUBSETS = 100_000


class EvalOptions(ConfigOptions):
    """What a user changes about an evaluation."""

    option_keys: ClassVar[Mapping[str, str]] = {
        "eval.metric": "metric",
        "eval.k_value": "k",
        "eval.num_tests_per_prompt": "answers_per_prompt",
        "eval.seed": "seed",
        "generation.model_name": "base_model",
        "generation.temperature": "temperature",
        "generation.max_new_tokens": "max_new_tokens",
        "generation.vllm_cfg.max_model_len": "max_sequence_tokens",
        "generation.vllm_cfg.gpu_memory_utilization": "gpu_memory_utilization",
        "generation.vllm_cfg.tensor_parallel_size": "tensor_parallel",
        "data.prompt_file": "prompt_file",
    }

    base_model: str = Field(
        default="auto",
        description="Model to score: a local folder in Hugging Face's format (an exported checkpoint), "
        "'builtin:smollm2', 'builtin:tiny', or 'auto' (NVTRADER_RL_BASE_MODEL if set, else smollm2 when its package is "
        "installed, else tiny).",
    )
    benchmark: str = Field(
        default="",
        description="A benchmark that NeMo-RL has (aime2024, aime2025, math, math500, gpqa, gpqa_diamond, mmlu, "
        "mmlu_pro), loaded from the hub; empty: the local file of problems and solutions.",
    )
    prompt_file: str = Field(
        default="",
        description="Text file with the prompt around each problem, {} where it goes and other braces doubled: an "
        "absolute path, or one below NeMo-RL's tree such as examples/prompts/cot.txt. Empty: the benchmark's own, and "
        "none around a local file's.",
    )
    metric: Literal["pass@k", "cons@k"] = Field(
        default="pass@k",
        description="'pass@k': at least one of k answers is right. 'cons@k': the most frequent of k answers is right.",
    )
    k: int = Field(default=1, ge=1, description="Answers that the metric looks at.")
    answers_per_prompt: int = Field(
        default=1, ge=1, description="Answers generated for each problem, at least k; more make the score steadier."
    )
    temperature: float = Field(
        default=0.0,
        ge=0,
        description="Sampling temperature; 0 takes the most likely token. More than one answer per prompt needs more.",
    )
    max_sequence_tokens: int = Field(
        default=2048, ge=16, description="Tokens of a problem and its answer together at most."
    )
    max_new_tokens: int = Field(default=1024, ge=1, description="Tokens of an answer at most; longer ones are cut off.")
    gpu_memory_utilization: float = Field(
        default=0.5,
        gt=0,
        lt=1,
        description="Share of the memory that generation (vLLM) takes; on unified memory, of the system's.",
    )
    tensor_parallel: int = Field(default=1, ge=1, description="GPUs over which each layer is split.")
    chat_template: str = Field(
        default="",
        description="Jinja chat template, as text or the path of a .jinja file; empty means the model's own.",
    )
    seed: int = Field(default=42, description="Seed of everything random.")
    overrides: dict[str, Any] = Field(
        default_factory=dict,
        description="Any other key of NeMo-RL's YAML by its dotted name, for example {'generation.top_p': 0.95}; "
        "unknown keys are refused.",
    )


def build_eval_config(
    options: EvalOptions,
    data: BenchmarkData | None,
    checkpoints: Path,
    logs: Path,
    target: Target = Target(),  # noqa: B008 (frozen)
) -> BuiltConfig:
    """A model's score on a local file (`data`) or a benchmark of NeMo-RL. Answers and rewards go into `logs`.

    checkpoints is not used: nothing is trained, and `steps` is 0. Raises `ValueError` for no benchmark, settings of
    the metric that contradict each other, and overrides. Keys: NeMo-RL `examples/configs/evals/`.
    """
    options, overrides = take_overrides("eval", options, target.version)
    if options.max_new_tokens >= options.max_sequence_tokens:
        raise ValueError(
            f"tokens: max_new_tokens {options.max_new_tokens} leaves no room for a problem in max_sequence_tokens "
            f"{options.max_sequence_tokens}; lower the first or raise the second"
        )
    if target.gpus % options.tensor_parallel:
        raise ValueError(f"gpus: {target.gpus} GPUs cannot be split by tensor_parallel {options.tensor_parallel}")
    notes = []
    if options.benchmark:
        benchmark = built_in_benchmark(
            options.benchmark,
            target.version,
            prompt_file=options.prompt_file,
            max_sequence_tokens=options.max_sequence_tokens,
        )
        notes.append(f"{options.benchmark} is loaded from the hub, which an offline run cannot")
    elif data is None:
        raise ValueError("benchmark: there is no file of problems and solutions, and the option benchmark is empty")
    else:
        benchmark = local_benchmark(
            data, prompt_file=options.prompt_file, max_sequence_tokens=options.max_sequence_tokens
        )
    model = resolve_base_model(options.base_model)
    config: dict[str, Any] = {
        "eval": {
            "metric": options.metric,
            "num_tests_per_prompt": options.answers_per_prompt,
            "k_value": options.k,
            "seed": options.seed,
            "save_path": str(logs),
        },
        "generation": {
            **generation_section(
                target,
                max_new_tokens=options.max_new_tokens,
                max_model_len=options.max_sequence_tokens,
                temperature=options.temperature,
                gpu_memory_utilization=options.gpu_memory_utilization,
                tensor_parallel=options.tensor_parallel,
            ),
            "num_prompts_per_step": -1,
            "model_name": model,
        },
        "tokenizer": tokenizer_section(model, options.chat_template),
        "data": benchmark.section,
        "env": {"math": {"num_workers": 2, "verifier_type": benchmark.verifier, "math_verify_impl": "hf_math_verify"}},
        "cluster": cluster_section(target),
    }
    notes.append(
        "NeMo-RL scores with its math environment: an answer is right or wrong by its solution; the rewards of the "
        "environment nvtrader are not used"
    )
    return finished("eval", config, overrides, target, steps=0, notes=notes, rules=(_metric_fits,))


def _metric_fits(config: dict[str, Any]) -> None:
    own, generation = config["eval"], config["generation"]
    k, answers = own["k_value"], own["num_tests_per_prompt"]
    if answers < k:
        raise ValueError(f"metric: {own['metric']} with k {k} needs at least {k} answers_per_prompt, not {answers}")
    if answers > 1 and (generation["temperature"] <= 0 or generation["top_k"] == 1):
        raise ValueError(
            f"metric: {answers} answers_per_prompt would all be the same at temperature {generation['temperature']} "
            f"and top_k {generation['top_k']}; raise the temperature, for example to 0.7"
        )
    if own["metric"] == "cons@k" and math.comb(answers, k) > _MOST_SUBSETS:
        raise ValueError(
            f"metric: cons@{k} goes through all {math.comb(answers, k)} ways to take {k} of {answers} answers, for "
            "each problem; lower answers_per_prompt"
        )
