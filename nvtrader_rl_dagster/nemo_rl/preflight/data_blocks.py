"""Which data sets a configuration names, and what is wrong with how it names them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvtrader_rl_dagster.nemo_rl.preflight.case import Case
from nvtrader_rl_dagster.nemo_rl.preflight.report import Finding, refuse, warn

#: Endings by which NeMo-RL takes a path for a local file; anything else is a hub name or a saved folder.
LOCAL = (".jsonl", ".json", ".csv", ".parquet", ".arrow", ".txt")
_BENCHMARKS = ("aime", "gpqa", "math", "mmlu", "mmau")
_PREFERENCE = ("PreferenceDataset", "BinaryPreferenceDataset")
_RESPONSE = ("ResponseDataset", "openai_format")
#: Names that need no data_path. 0.7.0 has those of 0.6.0 but AIME2024's file, and more.
_PREFERENCE_HUB = ("HelpSteer3", "Tulu3Preference")


@dataclass(frozen=True)
class DataBlock:
    """One data set. key: where it stands in the configuration. file: None for one that is not a local file."""

    name: str
    role: str
    key: str
    dataset_name: str
    source: str
    file: Path | None
    settings: dict[str, Any]


def data_blocks(case: Case) -> tuple[list[DataBlock], list[Finding]]:
    """The data sets that can be looked at, in reading order, and findings about the others."""
    found = list(_benchmark(case) if not case.trains else _training(case))
    return [x for x in found if isinstance(x, DataBlock)], [x for x in found if isinstance(x, Finding)]


def _training(case: Case) -> Iterator[DataBlock | Finding]:
    settings, lists = case.settings, not case.preference and not case.embedded
    default = settings.section("data.default")
    if case.preference and not case.embedded and settings.has("data.default") and settings.get("data.default") is None:
        yield refuse("data_default", "data.default is null, which ends the run", "leave data.default out")
    if not settings.get("data.train"):
        yield refuse("no_train_data", "data.train names no data set", "set data.train.dataset_name and data_path")
        return
    sets = settings.get("data.val_data_paths") if case.preference else None
    for role in ("train", "validation"):
        if role == "validation" and sets:
            break
        value = settings.get(f"data.{role}")
        if isinstance(value, list) and not lists:
            yield refuse(
                "data_list", f"data.{role} is a list; it takes one data set", f"write data.{role} as a mapping"
            )
            continue
        blocks = value if isinstance(value, list) else [value] if value else []
        for index, block in enumerate(blocks):
            key = f"data.{role}[{index}]" if isinstance(value, list) else f"data.{role}"
            if not isinstance(block, dict):
                yield refuse("data_block", f"{key} is no mapping", "set its dataset_name and data_path")
                continue
            name = role if len(blocks) == 1 else f"{role}[{index}]"
            yield from _located(case, name if role == "train" or not case.preference else "default", role, key,
                                {**default, **block})  # fmt: skip
    if isinstance(sets, dict):
        for name, path in sets.items():
            block = {"dataset_name": "PreferenceDataset", "data_path": path}
            yield from _located(case, str(name), "validation", f"data.val_data_paths.{name}", block)
    elif sets:
        yield refuse("data_block", "data.val_data_paths is no mapping", "write it as {name: path}")


def _located(case: Case, name: str, role: str, key: str, block: dict[str, Any]) -> Iterator[DataBlock | Finding]:
    kind, source = block.get("dataset_name"), block.get("data_path")
    if not isinstance(kind, str):
        yield refuse("dataset_name", f"{key} has no dataset_name", f"set {key}.dataset_name")
        return
    known = _PREFERENCE if case.preference else _RESPONSE
    if case.embedded and kind not in known:
        yield refuse("dataset_name", f"the embedded trainer has no {kind!r}", f"use one of: {', '.join(known)}")
        return
    if kind in known and not isinstance(source, str):
        yield refuse("data_path", f"{key} has no data_path", f"set {key}.data_path to a file")
        return
    dotted = "." in kind and case.version != "0.6.0"
    if case.preference and kind not in (*known, *_PREFERENCE_HUB) and not dotted:
        names = ", ".join((*known, *_PREFERENCE_HUB))
        yield refuse("dataset_name", f"{key}: NeMo-RL has no preference data set {kind!r}", f"use one of: {names}")
        return
    if kind not in known:
        yield DataBlock(name, role, key, kind, str(source or kind), None, block)
        if not dotted and source is None:
            yield from _hub(case, key, kind)
        return
    assert isinstance(source, str)
    path = case.path(source)
    anything = kind == "openai_format"  # read as JSON whatever its ending
    if (path.suffix in LOCAL or (anything and path.is_file())) and (not case.embedded or path.suffix in LOCAL[:2]):
        yield from _splits(case, key, kind, block)
        if path.is_file():
            yield DataBlock(name, role, key, kind, source, path, block)
        else:
            yield refuse("file_missing", f"{key}: {path} is not there", f"correct {key}.data_path")
    elif path.is_file():
        wanted = LOCAL[:2] if case.embedded else LOCAL
        remedy = f"write it as a plain file whose name ends in {', '.join(wanted)} (in lower case)"
        yield refuse("wrong_extension", f"{key}: {path} would not be read as a local file", remedy)
    elif path.is_dir():
        yield DataBlock(name, role, key, kind, source, None, block)
        yield warn("unchecked_data", f"{key}: the saved data set {path} is not looked into", "check its rows yourself")
    elif case.embedded or anything or source.startswith(("/", ".", "~")) or source.count("/") > 1:
        yield refuse("file_missing", f"{key}: {path} is not there", f"correct {key}.data_path")
    else:
        yield DataBlock(name, role, key, kind, source, None, block)
        yield from _hub(case, key, source)


def _splits(case: Case, key: str, kind: str, block: dict[str, Any]) -> Iterator[Finding]:
    if kind == "openai_format":
        if block.get("use_preserving_dataset") and case.version == "0.6.0":
            remedy = "leave use_preserving_dataset out, or use NeMo-RL 0.7.0"
            yield refuse("preserving_dataset", f"{key}.use_preserving_dataset fails in NeMo-RL 0.6.0", remedy)
        return
    if block.get("split") not in (None, "", "train"):
        yield refuse("split", f"{key}.split is {block['split']!r}; a local file has only train", f"{key}.split: train")
    if block.get("subset") is not None:
        yield refuse("subset", f"{key}.subset is set; a local file has none", f"leave {key}.subset out")


def _hub(case: Case, key: str, name: str) -> Iterator[Finding]:
    offline = any(case.environment.get(v) in ("1", "true", "TRUE", "ON", "YES") for v in _OFFLINE)
    home = Path(case.environment.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cached = any(home.glob(f"hub/datasets--{name.replace('/', '--')}")) or any(
        home.glob(f"datasets/{name.replace('/', '___')}*")
    )
    if "/" in name and offline and not cached:
        yield refuse(
            "hub_offline",
            f"{key}: {name} is a hub data set, the run is offline, and {home} does not hold it",
            "download it first, or write a local file and set data_path",
        )
    else:
        yield warn("unchecked_data", f"{key}: the hub data set {name} is not looked into", "check its rows yourself")


_OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")


def _benchmark(case: Case) -> Iterator[DataBlock | Finding]:
    name = case.settings.get("data.dataset_name")
    if not isinstance(name, str):
        yield refuse("dataset_name", "data.dataset_name names no benchmark", "set it to a file or a built-in name")
        return
    block = case.settings.section("data")
    if name.startswith(_BENCHMARKS) and not os.path.splitext(name)[1]:  # noqa: PTH122  a name, not a path
        yield DataBlock("benchmark", "eval", "data", name, name, None, block)
        return
    path = case.path(name)
    if "://" in name:
        yield DataBlock("benchmark", "eval", "data", name, name, None, block)
        yield warn("unchecked_data", f"data: {name} is not looked into", "check its rows yourself")
    elif not path.is_file():
        yield refuse("file_missing", f"data.dataset_name: {path} is not there", "correct data.dataset_name")
    elif block.get("split") != "train":
        yield refuse(
            "split", f"data.split is {block.get('split')!r}; a local file needs train", "set data.split: train"
        )
    else:
        yield DataBlock("benchmark", "eval", "data", "local", name, path, block)
