"""Reads of a run's configuration by dotted key, with its interpolations resolved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_MISSING: Any = object()


class Settings:
    """A nested mapping. A key below something that is no mapping is absent."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def get(self, dotted: str, default: Any = None) -> Any:
        """The value of a key, `default` when it is absent or null."""
        value = self._find(dotted)
        return default if value is _MISSING or value is None else value

    def has(self, dotted: str) -> bool:
        """Whether the key is there, null or not."""
        return self._find(dotted) is not _MISSING

    def number(self, dotted: str) -> int | None:
        """A whole number, else None."""
        value = self.get(dotted)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def section(self, dotted: str) -> dict[str, Any]:
        """A mapping; an empty one when the key is absent or something else."""
        value = self.get(dotted)
        return dict(value) if isinstance(value, Mapping) else {}

    def _find(self, dotted: str) -> Any:
        value: Any = self.values
        for key in dotted.split("."):
            if not isinstance(value, Mapping) or key not in value:
                return _MISSING
            value = value[key]
        return value


def read_config(file: Path) -> dict[str, Any]:
    """A YAML file merged over its `defaults`; interpolations stay as they are.

    Raises `ValueError` naming the file when it cannot be read or is no mapping.
    """
    try:
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{file}: the top level must be a mapping of sections")
    return merged(config, file.parent)


def merged(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A configuration over its `defaults`, relative ones from `folder`. Raises `ValueError` for one that is missing."""
    if "defaults" not in config:
        return dict(config)
    from omegaconf import OmegaConf

    from nvtrader_rl_dagster.nemo_rl.config_files import merge_parents

    whole = OmegaConf.to_container(merge_parents(OmegaConf.create(dict(config)), folder))
    assert isinstance(whole, dict)
    return {str(key): value for key, value in whole.items()}


def resolved(config: Mapping[str, Any]) -> tuple[Settings, list[str]]:
    """The configuration without interpolations, and which of NeMo-RL's resolvers it uses.

    Raises `ValueError` for an interpolation that leads nowhere.
    """
    text = "\n".join(_interpolations(config))
    if not text:
        return Settings(config), []
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from nvtrader_rl_dagster.nemo_rl.config_files import register_resolvers

    register_resolvers()
    try:
        values = OmegaConf.to_container(OmegaConf.create(dict(config)), resolve=True, throw_on_missing=True)
    except (OmegaConfBaseException, TypeError, ValueError) as error:
        raise ValueError(f"the configuration cannot be resolved: {error}") from error
    assert isinstance(values, dict)
    return Settings({str(key): value for key, value in values.items()}), [
        name for name in ("mul", "div", "max") if f"${{{name}:" in text
    ]


def _interpolations(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if "${" in value else []
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [found for child in children for found in _interpolations(child)]
