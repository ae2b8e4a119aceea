"""ShareGPT rows: `conversations[{from, value}]` with `chosen` and `rejected`, or with a `label`."""

from __future__ import annotations

import json
from typing import Any

from nvtrader_rl_dagster.feedback.events import decision, preference
from nvtrader_rl_dagster.feedback.importers import kto
from nvtrader_rl_dagster.feedback.importers.base import ImportOptions, Outcome, Row, named, with_system
from nvtrader_rl_dagster.feedback.messages import Message, arguments_text, to_messages
from nvtrader_rl_dagster.feedback.reasons import RowRejected

_ROLES = {
    "human": "user", "user": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant",
    "chatgpt": "assistant", "assistant": "assistant", "system": "system", "observation": "tool", "tool": "tool",
}  # fmt: skip


def read(row: Row, options: ImportOptions, source: str) -> list[Outcome]:
    """One comparison, or one decision on the conversation's last turn."""
    key = "conversations" if "conversations" in row else "messages"
    if row.get(key) is None:
        raise RowRejected("missing_context", key, "missing or null")
    turns = to_messages(_translate(row[key], key), "user", key)
    if "chosen" in row or "rejected" in row:
        sides = [_translate(row.get(side), side) for side in ("chosen", "rejected")]
        return [named({"prompt": key}, preference, with_system(row, turns), *sides, source=source)]
    verdict = kto.verdict_of(row)
    prompt, answer = kto.last_answer(turns, key)
    return [named({"prompt": key}, decision, with_system(row, prompt), answer, verdict, source=source)]


def _translate(value: Any, field: str) -> Any:
    """Turns with `from` and `value` as turns with `role` and `content`; anything else stays."""
    if isinstance(value, list):
        return [_turn(item, f"{field}[{i}]") for i, item in enumerate(value)]
    return _turn(value, field)


def _turn(turn: Any, field: str) -> Any:
    if not isinstance(turn, dict) or "from" not in turn:
        return turn
    speaker, value = turn["from"], turn.get("value")
    if speaker == "function_call":
        return _function_call(value, field)
    role = _ROLES.get(speaker) if isinstance(speaker, str) else None
    if role is None:
        raise RowRejected("bad_role", f"{field}.from", f"found {speaker!r:.40}")
    return {"role": role, "content": value}


def _function_call(value: Any, field: str) -> Message:
    """The JSON text `{"name", "arguments"}`, or a list of such, as an assistant turn that calls tools."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        found = None
    calls = found if isinstance(found, list) else [found]
    if not calls or not all(isinstance(call, dict) and isinstance(call.get("name"), str) for call in calls):
        raise RowRejected("tool_calls_unsupported", f"{field}.value", "expected JSON with name and arguments")
    functions = [{"name": call["name"], "arguments": arguments_text(call.get("arguments"))} for call in calls]
    tool_calls = [{"type": "function", "function": function} for function in functions]
    return {"role": "assistant", "content": "", "tool_calls": tool_calls}
