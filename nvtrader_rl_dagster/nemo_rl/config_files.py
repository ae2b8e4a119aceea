"""NeMo-RL's YAML files: inheritance through `defaults`, and the resolvers that its scripts register."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf


class ConfigFileError(ValueError):
    """A YAML file that cannot be read; names the file and the remedy."""


def register_resolvers() -> None:
    """`${mul:a,b}`, `${div:a,b}` and `${max:a,b}`."""
    resolvers: dict[str, Callable[..., Any]] = {"mul": lambda a, b: a * b, "div": lambda a, b: a / b, "max": max}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # omegaconf 2.4 deprecates the only name that 2.3 has with this meaning
        for name, function in resolvers.items():
            if not OmegaConf.has_resolver(name):
                OmegaConf.register_new_resolver(name, function)


def load_with_parents(path: Path, seen: tuple[Path, ...] = ()) -> DictConfig:
    """A file merged over its `defaults`, which are looked up from the file's own folder.

    Raises `ConfigFileError` for a file that is missing, no YAML, no mapping, or inherits from itself.
    """
    if path.resolve() in seen:
        raise ConfigFileError(f"{path}: 'defaults' leads back to this file; remove the loop.")
    try:
        config = OmegaConf.load(path)
    except FileNotFoundError:
        raise ConfigFileError(f"{path}: no such file; check --config and 'defaults'.") from None
    except Exception as error:  # yaml raises several unrelated types
        raise ConfigFileError(f"{path}: not readable as YAML: {error}") from error
    if not isinstance(config, DictConfig):
        raise ConfigFileError(f"{path}: the top level must be a mapping of sections.")
    return merge_parents(config, path.parent, (*seen, path.resolve()))


def merge_parents(config: DictConfig, folder: Path, seen: tuple[Path, ...] = ()) -> DictConfig:
    """A configuration merged over its `defaults`, which are looked up from `folder`. Raises as `load_with_parents`."""
    parents = config.pop("defaults", None)
    if parents is None:
        return config
    base = OmegaConf.create({})
    for parent in parents if isinstance(parents, ListConfig) else [parents]:
        base = _merge(base, load_with_parents(folder / str(parent), seen))
    return _merge(base, config)


def _merge(base: DictConfig, child: DictConfig) -> DictConfig:
    """Merge `child` over `base`; a child section with `_override_: true` replaces the base's section."""
    for key in list(child.keys()):
        section = child._get_node(key)
        if isinstance(section, DictConfig) and not section._is_none() and section.get("_override_", False):
            section.pop("_override_")
            base.pop(key, None)
    merged = OmegaConf.merge(base, child)
    assert isinstance(merged, DictConfig)
    return merged
