"""Strict JSON decoding of one value: duplicate keys, NaN, huge numbers and lone surrogates are refused."""

from __future__ import annotations

import json
import re
from typing import Any

from nvtrader_rl_dagster.feedback.reasons import RowRejected

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_MAX_DIGITS = 400
# A cut text fails within the length of the longest token that gives no other sign (`\ud83d`, `Infinity`).
_NEAR_END = 10


class JsonText:
    """Decodes values out of text. The hooks note what they refuse, so that the end of the value is still found."""

    def __init__(self) -> None:
        self._problem: RowRejected | None = None
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_constant=self._not_json,
            parse_int=self._int,
            parse_float=self._float,
        )

    def decode(self, text: str, start: int = 0) -> tuple[Any, int, RowRejected | None]:
        """The value at `start`, where it ends, and the reason to refuse it if there is one.

        Raises json.JSONDecodeError for broken JSON and RowRejected for nesting that is too deep.
        """
        self._problem = None
        try:
            value, end = self._decoder.raw_decode(text, start)
        except RecursionError:
            raise RowRejected("bad_json", None, "nested too deeply") from None
        problem = self._problem
        if problem is None and _ESCAPED_SURROGATE.search(text, start, end):
            problem = _lone_surrogate(value)
        return value, end, problem

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            self._problem = RowRejected("duplicate_key", twice[:80])
        return result

    def _not_json(self, constant: str) -> None:
        self._problem = RowRejected("bad_json", None, f"{constant} is not JSON")

    def _int(self, digits: str) -> int:
        if len(digits) > _MAX_DIGITS:
            self._problem = RowRejected("bad_json", None, f"a number of {len(digits)} digits")
            return 0
        return int(digits)

    def _float(self, digits: str) -> float:
        value = float(digits)
        if value in (float("inf"), float("-inf")):
            self._problem = RowRejected("bad_json", None, f"{digits[:40]} is out of range")
        return value


def ends_early(error: json.JSONDecodeError, length: int) -> bool:
    """Whether the error is what a text of `length` characters gives when its end is missing."""
    if error.msg.startswith("Extra data"):
        return False
    return error.msg.startswith("Unterminated string") or error.pos >= length - _NEAR_END


def _lone_surrogate(value: Any) -> RowRejected | None:
    """The first text in `value` that holds half of a surrogate pair."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        path, item = waiting.pop()
        if isinstance(item, str):
            try:
                item.encode()
            except UnicodeEncodeError as error:
                return RowRejected("lone_surrogate", path or None, f"at character {error.start}")
        elif isinstance(item, list):
            waiting += [(f"{path}[{i}]", child) for i, child in enumerate(item)]
        elif isinstance(item, dict):
            waiting += [(f"{path}.{key}" if path else key, child) for key, child in item.items()]
            waiting += [(path, key) for key in item]
    return None
