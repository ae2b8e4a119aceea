"""Rules of trainings on generated answers: environments, batches, processors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nvtrader_rl_dagster.nemo_rl.preflight.case import Case
from nvtrader_rl_dagster.nemo_rl.preflight.data_blocks import DataBlock
from nvtrader_rl_dagster.nemo_rl.preflight.report import Finding, refuse, warn

#: `ENV_REGISTRY` of both releases, and the one that our driver registers.
_ENVIRONMENTS = (
    "math_default",
    "math",
    "math_multi_reward",
    "code",
    "code_jaccard",
    "reward_model",
    "vlm",
    "nemo_gym",
    "nvtrader",
)
#: Processors whose row is a prompt with its ground truth. 0.7.0 has no math_gdpo_data_processor.
_QUESTIONS = ("default", "math_hf_data_processor", "math_gdpo_data_processor")
#: Processors that read other columns than a local data set has.
_OTHERS = ("math_data_processor", "multichoice_qa_processor", "helpsteer3_data_processor", "vlm_hf_data_processor")
_LOCAL = ("ResponseDataset", "openai_format")


def check_processors(case: Case, blocks: Sequence[DataBlock]) -> Iterator[Finding]:
    """The processor of each block is there and reads what the data set class gives it."""
    if case.preference or case.embedded or not case.trains:
        return
    for block in blocks:
        name = block.settings.get("processor", "default")
        key = f"{block.key}.processor"
        if case.section == "sft":
            if name in (*_QUESTIONS, *_OTHERS):
                yield refuse("processor", f"{key} is {name}, which SFT cannot call", f"set {key}: sft_processor")
        elif name == "math_gdpo_data_processor" and case.version != "0.6.0":
            message = f"{key} is {name}, which NeMo-RL {case.version} has no more"
            yield refuse("processor", message, f"set {key}: math_hf_data_processor")
        elif name in _OTHERS and block.dataset_name in _LOCAL:
            message = f"{key} is {name}, which reads columns that {block.dataset_name} does not have"
            yield refuse("processor", message, f"set {key}: math_hf_data_processor")
        elif name not in (*_QUESTIONS, *_OTHERS, "sft_processor", "nemo_gym_data_processor", "kd_data_processor"):
            message = f"{key} is {name}, which NeMo-RL does not have"
            # A module of the user's may register it while its environment is loaded.
            own = any("class_path" in env for env in case.settings.section("env").values() if isinstance(env, dict))
            yield (warn if own else refuse)("processor", message, f"register it, or set {key}: math_hf_data_processor")


def check_rollouts(case: Case) -> Iterator[Finding]:
    """Environments are there, and batches divide."""
    if not case.rl:
        return
    yield from _environments(case)
    settings, section = case.settings, case.section
    multiplier = settings.get(f"{section}.batch_multiplier", 1)
    if multiplier != 1 and not settings.get(f"{section}.use_dynamic_sampling"):
        message = f"{section}.batch_multiplier is {multiplier} without dynamic sampling"
        yield refuse("batch_multiplier", message, f"set {section}.batch_multiplier: 1")
    prompts, answers = (
        settings.number(f"{section}.{key}") for key in ("num_prompts_per_step", "num_generations_per_prompt")
    )
    batch = settings.number("policy.train_global_batch_size")
    if prompts and answers and batch and (prompts * answers) % batch:
        message = f"the {prompts * answers} answers of a step are no multiple of policy.train_global_batch_size {batch}"
        yield refuse("batch_size", message, f"set policy.train_global_batch_size to a divisor of {prompts * answers}")
    if settings.get(f"{section}.async_grpo.enabled"):
        for name in ("reward_scaling.enabled", "reward_shaping.enabled", "use_dynamic_sampling"):
            if settings.get(f"{section}.{name}"):
                yield refuse("async_grpo", f"async GRPO takes no {section}.{name}", f"set {section}.{name}: false")


def _environments(case: Case) -> Iterator[Finding]:
    settings = case.settings
    for key, name, in_list in _named(case):
        environment = settings.get(f"env.{name}")
        if not isinstance(environment, dict):
            yield refuse("environment", f"{key} is {name}, and there is no env.{name}", f"add env.{name}")
        elif name not in _ENVIRONMENTS and "class_path" not in environment:
            message = f"{key} is {name}, which NeMo-RL does not have"
            yield refuse(
                "environment", message, f"set env.{name}.class_path, or use one of: {', '.join(_ENVIRONMENTS)}"
            )
        if in_list and settings.get("data.default.env_name") != name:
            message = f"{key}: NeMo-RL does not see an env_name inside a list"
            yield refuse("environment", message, f"set data.default.env_name: {name}")
    if not list(_named(case)):
        message = "no data set names its environment, so no answer gets a reward"
        yield refuse("environment", message, "set data.default.env_name")


def _named(case: Case) -> Iterator[tuple[str, str, bool]]:
    for key in ("train", "validation", "default"):
        value: Any = case.settings.get(f"data.{key}")
        for index, block in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(block, dict) and isinstance(block.get("env_name"), str):
                in_list = isinstance(value, list)
                yield f"data.{key}{f'[{index}]' if in_list else ''}.env_name", block["env_name"], in_list
