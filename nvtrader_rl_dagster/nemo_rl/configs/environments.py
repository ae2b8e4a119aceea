"""What scores the answers: the `env` section, and the data blocks that select it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.nemo_rl.configs.data import TrainingData
from nvtrader_rl_dagster.nemo_rl.configs.rollout_options import RolloutOptions
from nvtrader_rl_dagster.nemo_rl.driver.registration import ENVIRONMENT
from nvtrader_rl_dagster.nemo_rl.driver.scoring import REWARD_MODEL
from nvtrader_rl_dagster.rewards import find_reward


def environment_section(
    options: RolloutOptions, *, multi: bool = False, verifier: str = "hf_math_verify"
) -> dict[str, Any]:
    """`env` with its one environment. multi: rewards stay apart, one column each. verifier: how `math` reads an answer.

    Raises `ValueError` (`rewards`) for an unknown reward, without any weight, for a reward model without a folder,
    and for fewer than two rewards when they stay apart.
    """
    if options.environment == "math":
        name = "math_multi_reward" if multi else "math"
        return {name: {"num_workers": 2, "math_verify_impl": verifier}}
    weights = _weights(options)
    if multi and len(weights) < 2:
        raise ValueError(
            f"rewards: GDPO needs at least two rewards with a weight, not {', '.join(weights)} alone; name another, or "
            "use grpo"
        )
    return {ENVIRONMENT: {"rewards": weights, "multi": multi, "reward_model": options.reward_model or None}}


def _weights(options: RolloutOptions) -> dict[str, float]:
    weights = {name: weight for name, weight in options.rewards.items() if weight > 0}
    if options.reward_model:
        weights.setdefault(REWARD_MODEL, 1.0)
    elif REWARD_MODEL in weights:
        raise ValueError("rewards: 'reward_model' has a weight, but the option reward_model names no folder; set it")
    if not weights:
        raise ValueError("rewards: none has a weight above 0; give one, for example {'length_sane': 1}")
    for name in weights:
        # A user's own, with dots, may be importable in NeMo-RL's Python only.
        if name != REWARD_MODEL and "." not in name:
            try:
                find_reward(name)
            except ValueError as error:
                raise ValueError(f"rewards: {error}") from None
    return weights


def prompt_data_section(options: RolloutOptions, data: TrainingData, env: dict[str, Any]) -> dict[str, Any]:
    """`data`: rows `{"input": prompt, "output": what judges its answer}` for the one environment of `env`."""
    (name,) = env
    return {
        # A prompt of this length or more is masked; a shorter one has room for its answer.
        "max_input_seq_length": options.max_sequence_tokens - options.max_new_tokens + 1,
        "shuffle": True,
        "num_workers": 0,
        "use_multiple_dataloader": False,
        "train": _block(data.train, name),
        "validation": _block(data.validation, name) if data.validation and data.validates else None,
    }


def _block(path: Path, environment: str) -> dict[str, Any]:
    return {
        "dataset_name": "ResponseDataset",
        "data_path": str(path),
        "split": "train",
        "input_key": "input",
        "output_key": "output",
        "prompt_file": None,
        "system_prompt_file": None,
        "processor": "math_hf_data_processor",
        "env_name": environment,
    }
