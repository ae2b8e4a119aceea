"""Carries each prompt's chat messages to the rewards; NeMo-RL hands environments only the rendered chat template."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: NeMo-RL's processors whose row is a question and its ground truth; each release has some of them.
PROCESSORS = ("default", "math_hf_data_processor", "math_gdpo_data_processor")
PROMPT_KEY = "prompt_messages"


def keep_prompt(
    processor: Callable[..., Any], datum_dict: dict[str, Any], task_data_spec: Any, *rest: Any, **more: Any
) -> Any:
    """What `processor` makes of a row, with the messages that the policy was shown in `extra_env_info`."""
    datum = processor(datum_dict, task_data_spec, *rest, **more)
    question = datum_dict["messages"][0]["content"]
    if task_data_spec.prompt:
        question = task_data_spec.prompt.format(question)
    messages = [{"role": "user", "content": question}]
    if task_data_spec.system_prompt:
        messages.insert(0, {"role": "system", "content": task_data_spec.system_prompt})
    datum["extra_env_info"][PROMPT_KEY] = messages
    return datum
