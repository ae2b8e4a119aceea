"""Whether the models that a run loads are there, complete, and can be talked to."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

from nvtrader_rl_dagster.nemo_rl.model_files import (
    BUILTIN,
    has_chat_template,
    has_tokenizer,
    missing_weights,
    model_folder,
    read_config_json,
)
from nvtrader_rl_dagster.nemo_rl.preflight.case import Case
from nvtrader_rl_dagster.nemo_rl.preflight.report import Finding, ok, refuse, warn

#: Owners on the hub whose models ask for consent and a token.
_GATED = ("meta-llama/", "google/gemma")
_ON = ("1", "true", "yes", "on")


def model_keys(case: Case) -> dict[str, str]:
    """Configuration keys of the models that a run loads, with their values."""
    if not case.trains:
        keys = ["generation.model_name"]
    else:
        keys = ["policy.model_name"]
        keys += ["teacher.model_name"] if case.section == "distillation" else []
        keys += ["value.model_name"] if case.section == "ppo" else []
        rewarded = any(case.settings.get(f"data.{x}.env_name") == "reward_model" for x in ("train", "default"))
        keys += ["env.reward_model.model_name"] if rewarded else []
    names = {key: case.settings.get(key) for key in keys}
    return {key: name for key, name in names.items() if isinstance(name, str) and name}


def check_models(case: Case) -> Iterator[Finding]:
    """Weights and config of each model, and the tokenizer with its chat template."""
    for key, name in model_keys(case).items():
        folder = yield from _folder(case, key, name)
        if folder is not None:
            yield from _weights(key, name, folder)
    yield from _tokenizer(case)


def _folder(case: Case, key: str, name: str) -> Generator[Finding, None, Path | None]:
    """Where a model is; findings when it is nowhere."""
    if name.startswith("builtin:"):
        if not case.embedded:
            message = f"{key} is {name}, which only the embedded trainer has"
            yield refuse("builtin_model", message, "give a Hugging Face folder, or use the embedded trainer")
        elif name not in BUILTIN:
            yield refuse("builtin_model", f"{key}: there is no {name}", f"use one of: {', '.join(BUILTIN)}")
        return None
    looks_local = name.startswith(("/", ".", "~")) or name.count("/") > 1
    folder = model_folder(str(case.path(name)) if looks_local else name, case.environment)
    if folder is not None:
        return folder
    if looks_local or case.embedded:
        yield refuse("model_missing", f"{key}: {name} is not there", f"correct {key}")
        return None
    offline = any(case.environment.get(v, "").lower() in _ON for v in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
    if offline:
        message = f"{key}: {name} is a hub model, the run is offline, and the cache does not hold it"
        remedy = f"download it first (hf download {name}), give a local folder, or run with HF_HUB_OFFLINE=0"
        yield refuse("hub_offline", message, remedy)
    elif name.startswith(_GATED) and "HF_TOKEN" not in case.environment:
        message = f"{key}: {name} is gated, and the run has no HF_TOKEN"
        yield refuse(
            "gated_model", message, "accept its licence on the hub and pass HF_TOKEN on, or give a local folder"
        )
    else:
        yield warn("hub_download", f"{key}: {name} will be downloaded", f"to do it before: hf download {name}")
    return None


def _weights(key: str, name: str, folder: Path) -> Iterator[Finding]:
    if not read_config_json(folder):
        message = f"{key}: {folder} has no readable config.json"
        yield refuse("model_incomplete", message, "give the folder of a Hugging Face model")
        return
    if problem := missing_weights(folder):
        yield refuse("model_incomplete", f"{key}: {folder}: {problem}", f"download {name} again, or correct {key}")
    else:
        yield ok("model", f"{key}: {folder} is complete")


def _tokenizer(case: Case) -> Iterator[Finding]:
    key = "policy.tokenizer" if case.trains else "tokenizer"
    name = case.settings.get(f"{key}.name") or (case.settings.get("policy.model_name") if case.embedded else None)
    if not isinstance(name, str) or name.startswith("builtin:"):
        return
    looks_local = name.startswith(("/", ".", "~")) or name.count("/") > 1
    folder = model_folder(str(case.path(name)) if looks_local else name, case.environment)
    if folder is None:
        if looks_local:
            yield refuse("tokenizer_missing", f"{key}.name: {name} is not there", f"correct {key}.name")
        elif name not in model_keys(case).values():
            yield warn(
                "hub_download", f"{key}.name: {name} is not in the cache", f"to do it before: hf download {name}"
            )
        return
    if not has_tokenizer(folder):
        message = f"{key}.name: {folder} has no tokenizer files"
        yield refuse("tokenizer_missing", message, "copy tokenizer.json and tokenizer_config.json of the base model")
        return
    section = case.settings.section(key)
    template = section.get("chat_template", "default")
    if isinstance(template, str) and template.lower() == "default" and not has_chat_template(folder):
        message = f"{key}.name: {folder} has no chat template"
        yield refuse("no_chat_template", message, f"set {key}.chat_template to a template or to a .jinja file")
    if isinstance(template, str) and template.endswith(".jinja") and not case.path(template).is_file():
        yield refuse(
            "no_chat_template", f"{key}.chat_template: {template} is not there", f"correct {key}.chat_template"
        )
