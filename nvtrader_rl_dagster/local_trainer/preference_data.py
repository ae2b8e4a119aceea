"""Preference rows as NeMo-RL's PreferenceDataset and BinaryPreferenceDataset read them, checked when loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from nvtrader_rl_dagster.local_trainer.config import ConfigError, Section

Message = dict[str, str]


class DataError(ValueError):
    """A row cannot be trained on; the text names file, line, field and remedy."""


@dataclass(frozen=True)
class PreferencePair:
    """One pair: context messages, the messages of both sides, and where it came from."""

    context: list[Message]
    chosen: list[Message]
    rejected: list[Message]
    pair_id: str | None
    prompt_hash: str | None
    line: int


def read_pairs(block: Section) -> list[PreferencePair]:
    """All pairs of one ``data.train`` or ``data.validation`` block, in file order.

    Raises ConfigError for an unsupported block and DataError for the first row that is not a preference.
    """
    kind = block.get("dataset_name", str)
    path = Path(block.get("data_path", str))
    if kind not in ("PreferenceDataset", "BinaryPreferenceDataset"):
        raise ConfigError(
            f"config: '{block.dotted('dataset_name')}' is {kind!r}; the embedded trainer reads local "
            "PreferenceDataset and BinaryPreferenceDataset files only."
        )
    if block.get("split", str, "train") != "train" or block.get("subset", str, None) is not None:
        raise ConfigError(f"config: '{block.path}': a local file has only split 'train' and no subset.")
    if block.get("prompt_file", str, None) is not None:
        raise ConfigError(f"config: '{block.dotted('prompt_file')}' is not supported; write the prompt into the rows.")
    keys = {name: block.get(f"{name}_key", str, name) for name in ("prompt", "chosen", "rejected")}
    rows = [
        _rank_row(row, where, line) if kind == "PreferenceDataset" else _binary_row(row, keys, where, line)
        for line, where, row in _rows(path)
    ]
    if not rows:
        raise DataError(f"{path}: the file has no rows; write at least one preference pair into it.")
    return rows


def read_rank_file(path: Path) -> list[PreferencePair]:
    """All pairs of a file in the rank shape (``context``, ``completions``)."""
    return read_pairs(Section({"dataset_name": "PreferenceDataset", "data_path": str(path)}))


def _rows(path: Path) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Line number, ``file:line`` and object of each row; a ``.json`` file may hold one array instead of lines."""
    if path.suffix not in (".jsonl", ".json"):
        raise DataError(f"{path}: only .jsonl and .json files are read; convert the file first.")
    if not path.is_file():
        raise DataError(f"{path}: no such file; check data_path.")
    if path.suffix == ".json":
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf").strip()
        if content.startswith(b"["):
            for number, row in enumerate(_parse(content, str(path)), start=1):
                yield number, f"{path}: row {number}", _object(row, f"{path}: row {number}")
            return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            content = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip()
            if content:
                where = f"{path}:{number}"
                yield number, where, _object(_parse(content, where), where)


def _parse(content: bytes, where: str) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise DataError(f"{where}: not valid JSON ({error}); repair or remove the line.") from None


def _object(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise DataError(f"{where}: the row must be a JSON object, got {type(row).__name__}.")
    return row


def _rank_row(row: dict[str, Any], where: str, line: int) -> PreferencePair:
    context = _messages(row.get("context"), where, "context")
    completions = row.get("completions")
    if not isinstance(completions, list) or len(completions) != 2:
        found = len(completions) if isinstance(completions, list) else type(completions).__name__
        raise DataError(f"{where}: 'completions' must be a list of exactly 2 completions, got {found}; split the row.")
    ranks: list[Any] = []
    sides: list[list[Message]] = []
    for index, completion in enumerate(completions):
        field = f"completions[{index}]"
        if not isinstance(completion, dict):
            raise DataError(f"{where}: '{field}' must be an object with 'rank' and 'completion'.")
        rank = completion.get("rank")
        if isinstance(rank, bool) or not isinstance(rank, (int, float, str)):
            raise DataError(f"{where}: '{field}.rank' must be a number, got {rank!r}.")
        ranks.append(rank)
        sides.append(_messages(completion.get("completion"), where, f"{field}.completion", empty=False))
    if isinstance(ranks[0], str) != isinstance(ranks[1], str):
        raise DataError(f"{where}: 'completions[].rank' mixes a number and a text; use numbers.")
    if ranks[0] == ranks[1]:
        raise DataError(f"{where}: 'completions[].rank' is {ranks[0]!r} twice: a tie is no preference; remove the row.")
    chosen, rejected = (sides[0], sides[1]) if ranks[0] < ranks[1] else (sides[1], sides[0])
    return _pair(row, context, chosen, rejected, line)


def _binary_row(row: dict[str, Any], keys: dict[str, str], where: str, line: int) -> PreferencePair:
    prompt = row.get(keys["prompt"])
    context = (
        [{"role": "user", "content": prompt}] if isinstance(prompt, str) else _messages(prompt, where, keys["prompt"])
    )
    sides = []
    for name in ("chosen", "rejected"):
        text = row.get(keys[name])
        if not isinstance(text, str):
            raise DataError(f"{where}: '{keys[name]}' must be a text, got {type(text).__name__}.")
        sides.append([{"role": "assistant", "content": text}])
    return _pair(row, context, sides[0], sides[1], line)


def _pair(
    row: dict[str, Any], context: list[Message], chosen: list[Message], rejected: list[Message], line: int
) -> PreferencePair:
    pair_id, prompt_hash = row.get("pair_id"), row.get("prompt_hash")
    return PreferencePair(
        context,
        chosen,
        rejected,
        None if pair_id is None else str(pair_id),
        None if prompt_hash is None else str(prompt_hash),
        line,
    )


def _messages(value: Any, where: str, field: str, *, empty: bool = True) -> list[Message]:
    """Messages with only the two keys that a chat template reads; DataError names the bad one."""
    if not isinstance(value, list) or (not value and not empty):
        raise DataError(
            f"{where}: '{field}' must be a list of messages, got {'[]' if value == [] else type(value).__name__}."
        )
    for index, message in enumerate(value):
        for key in ("role", "content"):
            if not isinstance(message, dict) or not isinstance(message.get(key), str):
                raise DataError(f"{where}: '{field}[{index}].{key}' must be a text; write plain text messages.")
    return [{"role": message["role"], "content": message["content"]} for message in value]
