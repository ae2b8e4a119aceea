"""NeMo-RL's YAML: inheritance, command-line overrides, resolvers, and typed reads that name the dotted key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nvtrader_rl_dagster.nemo_rl.config_files import ConfigFileError, load_with_parents, register_resolvers

T = TypeVar("T")


class ConfigError(ValueError):
    """A key of the run's YAML is missing, has the wrong type, or asks for something that is not supported."""


def _apply_override(config: DictConfig, override: str) -> None:
    """Apply one override of Hydra's basic grammar: ``a.b=v``, ``+a.b=v``, ``++a.b=v`` or ``~a.b``."""
    if override.startswith("~"):
        parent_key, _, leaf = override[1:].rpartition(".")
        parent = OmegaConf.select(config, parent_key) if parent_key else config
        if not isinstance(parent, DictConfig) or leaf not in parent:
            raise ConfigError(f"override {override!r}: there is no such key to remove.")
        del parent[leaf]
        return
    name, equals, text = override.partition("=")
    key = name.lstrip("+")
    plus = len(name) - len(key)
    if not equals or not key or plus > 2 or key.startswith("-"):
        raise ConfigError(f"override {override!r}: write it as key.subkey=value (+ for a new key, ~ to remove).")
    missing = object()
    known = OmegaConf.select(config, key, default=missing, throw_on_missing=False) is not missing or _is_null(
        config, key
    )
    if plus == 0 and not known:
        raise ConfigError(f"override {override!r}: the config has no key '{key}'; write +{key}=... to add it.")
    if plus == 1 and known:
        raise ConfigError(f"override {override!r}: key '{key}' exists; write {key}=... to change it.")
    parsed = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]))
    assert isinstance(parsed, dict)
    OmegaConf.update(config, key, parsed["value"], merge=False, force_add=True)


def _is_null(config: DictConfig, key: str) -> bool:
    """Whether ``key`` is present with the value null (``OmegaConf.select`` answers its default for those)."""
    parent_key, _, leaf = key.rpartition(".")
    parent = OmegaConf.select(config, parent_key) if parent_key else config
    return isinstance(parent, DictConfig) and leaf in parent


def load_config(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Read a run's YAML with its parents, apply overrides, resolve interpolations; a plain nested dict.

    Raises ConfigError with the file or the override, and the remedy.
    """
    register_resolvers()
    try:
        config = load_with_parents(path)
    except ConfigFileError as error:
        raise ConfigError(str(error)) from error
    for override in overrides:
        _apply_override(config, override)
    try:
        resolved = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{path}: {error}") from error
    assert isinstance(resolved, dict)
    return {str(key): value for key, value in resolved.items()}


_REQUIRED: Any = object()


class Section:
    """A mapping of the config that knows its dotted path, so that every error can name the key."""

    def __init__(self, values: dict[str, Any], path: str = "") -> None:
        self.values = values
        self.path = path

    def dotted(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def section(self, key: str, *, optional: bool = False) -> Section:
        """The sub-section ``key``; an empty one when it is optional and absent or null."""
        value = self.values.get(key)
        if value is None and optional:
            value = {}
        if value is None:
            raise ConfigError(f"config: section '{self.dotted(key)}' is missing; NeMo-RL's DPO YAML needs it.")
        if not isinstance(value, dict):
            raise ConfigError(f"config: '{self.dotted(key)}' must be a mapping, got {value!r}.")
        return Section(value, self.dotted(key))

    def get(self, key: str, kind: type[T], default: Any = _REQUIRED) -> T:
        """The value of ``key`` as ``kind``; ``default`` when absent or null, else ConfigError.

        An int is accepted where a float is asked for, never a bool for a number.
        """
        value = self.values.get(key)
        if value is None:
            if default is _REQUIRED:
                state = "is null" if key in self.values else "is missing"
                raise ConfigError(f"config: '{self.dotted(key)}' {state}; set it to a {kind.__name__}.")
            return default
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)  # type: ignore[return-value]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ConfigError(f"config: '{self.dotted(key)}' must be a {kind.__name__}, got {value!r}.")
        return value

    def optional(self, key: str, kind: type[T]) -> T | None:
        """``get`` for a key that must be present but may be null."""
        if key not in self.values:
            raise ConfigError(f"config: '{self.dotted(key)}' is missing; set it to a {kind.__name__} or null.")
        return self.get(key, kind, None)

    def positive(self, key: str) -> int:
        """``get`` for a whole number of at least 1."""
        value = self.get(key, int)
        if value < 1:
            raise ConfigError(f"config: '{self.dotted(key)}' must be at least 1, got {value}.")
        return value
