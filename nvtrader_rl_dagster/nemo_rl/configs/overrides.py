"""Checked free overrides: any key that NeMo-RL knows, by its dotted name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from nvtrader_rl_dagster.nemo_rl.configs.built import BuiltConfig
from nvtrader_rl_dagster.nemo_rl.configs.known_keys import fits, known_keys
from nvtrader_rl_dagster.nemo_rl.configs.options import ConfigOptions
from nvtrader_rl_dagster.nemo_rl.configs.rules import check_structure
from nvtrader_rl_dagster.nemo_rl.configs.target import Target

Options = TypeVar("Options", bound=ConfigOptions)
Rule = Callable[[dict[str, Any]], None]

_DATA = "the data set of the run decides it; its rows are counted for the batches"
_WORKER = "the option worker decides it, with all that goes with it"
#: Keys that cannot be set, and why. A key that starts with a dot is the end of one.
_OWNED = {
    "checkpointing.checkpoint_dir": "each run has its own folder, and NeMo-RL resumes from what it finds there",
    "logger.log_dir": "each run has its own folder",
    ".env_vars": "with a mapping there NeMo-RL writes its whole environment, secrets included, into each checkpoint",
    "data.train.data_path": _DATA,
    "data.train.dataset_name": _DATA,
    "data.validation.data_path": _DATA,
    "data.validation.dataset_name": _DATA,
    "data.val_data_paths": _DATA,
    "policy.dtensor_cfg.enabled": _WORKER,
    "policy.dtensor_cfg._v2": _WORKER,
    "policy.megatron_cfg.enabled": _WORKER,
    "policy.dtensor_cfg.lora_cfg.enabled": "the option lora_rank decides it",
    "policy.megatron_cfg.peft.enabled": "the option lora_rank decides it",
}


def take_overrides(algo: str, options: Options, version: str) -> tuple[Options, dict[str, Any]]:
    """Check `options.overrides`; those that an option decides become that option, the rest is returned.

    Raises `ValueError` (`override`) naming the key: unknown (with the nearest known one), owned by the run, or of the
    wrong kind.
    """
    named = options.option_keys
    known = known_keys(algo, version)
    updates: dict[str, Any] = {}
    asked: dict[str, str] = {}
    rest: dict[str, Any] = {}
    for key, value in flat(options.overrides).items():
        if reason := _reason_against(key):
            raise ValueError(f"override: {key} cannot be set: {reason}")
        kind = known.kind(key)
        if kind is None:
            by_option = {f"{algo}.{option}": name for name, option in [*named.items()][::-1]}
            near = known.nearest(key, by_option | {name: name for name in named})
            raise ValueError(f"override: NeMo-RL {version} has no key {key} for {algo}; the nearest is {near}")
        if value == {} and kind != "open":
            raise ValueError(f"override: {key} is a section; name a key below it")
        if not fits(value, kind):
            raise ValueError(f"override: {key} takes {kind.replace('|', ' or ')}, not {value!r}")
        if option := named.get(key):
            updates[option], asked[option] = value, key
        else:
            rest[key] = value
    if not updates:
        return options, rest
    try:
        return type(options).model_validate(options.model_dump() | updates), rest
    except ValidationError as error:
        wrong = error.errors()[0]
        name = str(wrong["loc"][0])
        raise ValueError(f"override: {asked.get(name, name)}: {wrong['msg']}, not {wrong['input']!r}") from error


def finished(
    algo: str,
    config: dict[str, Any],
    overrides: dict[str, Any],
    target: Target,
    *,
    steps: int,
    notes: list[str],
    rules: Iterable[Rule] = (),
) -> BuiltConfig:
    """The configuration with the rest of the overrides in it, checked. Raises `ValueError` when a rule is broken or
    an override has no effect."""
    for key, value in overrides.items():
        _put(config, key, value)
        notes.append(f"{key} is set to {value!r} by an override")
    for key in overrides:
        if off := _switched_off(config, key):
            raise ValueError(f"override: {key} has no effect: {off}.enabled is false")
    check_structure(algo, config, target)
    for rule in rules:
        rule(config)
    return BuiltConfig(config, steps, notes)


def flat(overrides: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys. An empty mapping is a value."""
    keys: dict[str, Any] = {}
    for name, value in overrides.items():
        key = f"{above}.{name}" if above else name
        keys |= flat(value, key) if isinstance(value, dict) and value else {key: value}
    return keys


def _reason_against(key: str) -> str | None:
    for owned, reason in _OWNED.items():
        if f"{key}.".startswith(f"{owned}.") or (owned.startswith(".") and f"{owned}." in f"{key}."):
            return reason
    return None


def _switched_off(config: dict[str, Any], key: str) -> str | None:
    """The section above `key` that is not enabled. The switch itself always has an effect."""
    names = key.split(".")
    place: Any = config
    for depth, name in enumerate(names[:-1], 1):
        place = place[name]
        if place.get("enabled") is False and names[depth:] != ["enabled"]:
            return ".".join(names[:depth])
    return None


def _put(config: dict[str, Any], key: str, value: Any) -> None:
    *above, leaf = key.split(".")
    place = config
    for name in above:
        inner = place.get(name)
        if not isinstance(inner, dict):
            inner = place[name] = {}
        place = inner
    place[leaf] = value
