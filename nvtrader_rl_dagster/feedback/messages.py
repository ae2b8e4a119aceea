"""Chat messages: from the spellings found in files to one plain form, and the checks on prompts and answers."""

from __future__ import annotations

import json
from typing import Any

from nvtrader_rl_dagster.feedback.reasons import RowRejected

Message = dict[str, Any]
"""`{"role", "content"}` and, where present, `tool_calls`, `tool_call_id` and `name`. Content is text."""

ROLES = frozenset({"system", "user", "assistant", "tool"})
_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})


def to_messages(value: object, role: str, field: str) -> list[Message]:
    """A text (one turn of `role`), one message or a list of messages as a list of messages.

    Raises RowRejected: not_text, bad_role, unsupported_modality, tool_calls_unsupported.
    """
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if isinstance(value, dict):
        return [_message(value, field)]
    if isinstance(value, list):
        messages = []
        for i, item in enumerate(value):
            # The common turn, without the cost of naming its place.
            if isinstance(item, dict) and len(item) == 2:
                said_by, content = item.get("role"), item.get("content")
                if isinstance(said_by, str) and said_by in ROLES and isinstance(content, str):
                    messages.append({"role": said_by, "content": content})
                    continue
            messages.append(_message(item, f"{field}[{i}]"))
        return messages
    raise RowRejected("not_text", field, f"found {type(value).__name__}, expected text or messages")


def _message(value: object, field: str) -> Message:
    if not isinstance(value, dict):
        raise RowRejected("not_text", field, f"found {type(value).__name__}, expected a message")
    role, content = value.get("role"), value.get("content")
    if not isinstance(role, str) or role not in ROLES:
        raise RowRejected("bad_role", f"{field}.role", f"found {_short(role)}")
    calls = value.get("tool_calls")
    if content is None and calls:
        content = ""
    message: Message = {"role": role, "content": _text(content, f"{field}.content")}
    if calls:
        if role != "assistant":
            raise RowRejected("tool_calls_unsupported", f"{field}.tool_calls", f"in a turn of role {role}")
        message["tool_calls"] = _tool_calls(calls, f"{field}.tool_calls")
    for key in ("tool_call_id", "name"):
        if value.get(key) is not None:
            message[key] = _text(value[key], f"{field}.{key}")
    return message


def _text(content: object, field: str) -> str:
    """Text, or a list of text parts joined without a separator."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RowRejected("not_text", field, f"found {type(content).__name__}")
    texts = []
    for i, part in enumerate(content):
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, dict):
            raise RowRejected("not_text", f"{field}[{i}]", f"found {type(part).__name__}")
        kind = part.get("type", "text")
        if not isinstance(kind, str) or kind not in _TEXT_PARTS:
            raise RowRejected("unsupported_modality", f"{field}[{i}]", f"part of type {_short(kind)}")
        text = part["text"] if part.get("text") is not None else part.get("value")
        if not isinstance(text, str):
            raise RowRejected("not_text", f"{field}[{i}]", f"found {type(text).__name__}")
        texts.append(text)
    return "".join(texts)


def _tool_calls(calls: object, field: str) -> list[dict[str, Any]]:
    """Tool calls with their arguments as a JSON string, which gives every row of a file the same column type."""
    if not isinstance(calls, list):
        raise RowRejected("tool_calls_unsupported", field, f"found {type(calls).__name__}, expected a list")
    normal = []
    for i, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(name, str):
            raise RowRejected("tool_calls_unsupported", f"{field}[{i}]", "no function name")
        entry: dict[str, Any] = {"type": "function"}
        if call.get("id") is not None:
            entry["id"] = _text(call["id"], f"{field}[{i}].id")
        entry["function"] = {"name": name, "arguments": arguments_text(function.get("arguments"))}
        normal.append(entry)
    return normal


def arguments_text(arguments: object) -> str:
    """A tool call's arguments as text: a string stays, anything else becomes canonical JSON, nothing is `{}`."""
    if isinstance(arguments, str):
        return arguments
    if arguments is None:
        return "{}"
    return json.dumps(arguments, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def check_prompt(messages: list[Message]) -> None:
    """A prompt holds a user turn with text and ends with a user or tool turn. Raises RowRejected."""
    if not messages:
        raise RowRejected("empty_prompt", "prompt")
    has_user = has_text = False
    for message in messages:
        if message["role"] == "user":
            has_user = True
            has_text = has_text or _has_text(message)
    if not has_user:
        raise RowRejected("no_user_turn", "prompt")
    if messages[-1]["role"] not in ("user", "tool"):
        raise RowRejected("context_not_ending_with_user", "prompt", f"ends with {messages[-1]['role']}")
    if not has_text:
        raise RowRejected("empty_prompt", "prompt")


def check_answer(messages: list[Message], field: str, empty_reason: str) -> None:
    """An answer starts and ends with the assistant, has only assistant and tool turns, and is not empty."""
    if not messages:
        raise RowRejected(empty_reason, field)
    filled = False
    for i, message in enumerate(messages):
        if message["role"] != "assistant" and (i in (0, len(messages) - 1) or message["role"] != "tool"):
            raise RowRejected("bad_role", f"{field}[{i}].role", f"found {message['role']}, expected assistant")
        filled = filled or _has_text(message) or "tool_calls" in message
    if not filled:
        raise RowRejected(empty_reason, field)


def text_length(messages: list[Message]) -> int:
    """Characters (code points) of all contents and tool-call arguments."""
    total = 0
    for message in messages:
        total += len(message["content"])
        if "tool_calls" in message:
            total += sum(len(call["function"]["arguments"]) for call in message["tool_calls"])
    return total


def has_tool_turns(messages: list[Message]) -> bool:
    """Whether any turn calls a tool or answers as one."""
    return any(m["role"] == "tool" or "tool_calls" in m for m in messages)


def _has_text(message: Message) -> bool:
    content = message["content"]
    return bool(content) and not content.isspace()


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else shown[:37] + "..."
