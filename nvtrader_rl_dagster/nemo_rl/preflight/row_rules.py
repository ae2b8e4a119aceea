"""What one row must be for the data set classes and processors of NeMo-RL, and for the embedded trainer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]


@dataclass(frozen=True)
class Problem:
    """Why a row would end the run. field: dotted, as in `completions[1].rank`."""

    code: str
    field: str
    message: str


@dataclass(frozen=True)
class Content:
    """A row that can be used: what its prompt is, and the conversations whose length counts.

    note: something that is accepted and yet not what anybody wants; a key of `NOTES`.
    """

    prompt: Any
    sides: tuple[list[Message], ...]
    note: str = ""


RowRule = Callable[[dict[str, Any]], "Problem | Content"]

REMEDIES = {
    "missing_field": "write the field into every row, or name the right key in the data block",
    "bad_messages": 'write a list of {"role": …, "content": …}',
    "not_text": "write plain text",
    "null_text": "write the text, or remove the row",
    "content_parts": "join the text parts into one text; images are not supported here",
    "wrong_count": "write exactly two completions; split a row with more into pairs",
    "bad_rank": "write a number for each rank; the lower one is preferred",
    "tie": "remove the row: equal ranks are no preference",
    "last_not_assistant": "end each conversation with an answer of the assistant",
    "not_object": "write one JSON object on each line",
}
NOTES = {
    "empty_completion": ("a completion is empty: the end of the prompt is trained instead", "remove these rows"),
    "identical_sides": ("both completions are the same: there is nothing to learn from them", "remove these rows"),
    "no_assistant": ("no message of the assistant: nothing of the row is trained", "remove these rows"),
    "null_output": ("the output is null: no answer can match it", "write what the answer is judged by"),
    "no_text_output": ("the output is no text: the built-in rewards give 0 for it", "write the output as text"),
}


def rank_rule(embedded: bool) -> RowRule:
    """Rows of `PreferenceDataset`. The embedded trainer takes no empty completion and no mixed ranks."""

    def rule(row: dict[str, Any]) -> Problem | Content:
        context = row.get("context")
        if problem := _messages(context, "context"):
            return problem
        completions = row.get("completions")
        if not isinstance(completions, list):
            return _absent("completions", completions, "a list of two completions")
        if len(completions) != 2:
            return Problem("wrong_count", "completions", f"it has {len(completions)} completions")
        ranks: list[Any] = []
        sides: list[list[Message]] = []
        for index, completion in enumerate(completions):
            field = f"completions[{index}]"
            if not isinstance(completion, dict):
                return Problem("bad_messages", field, "it is no object with rank and completion")
            answer = completion.get("completion")
            if problem := _messages(answer, f"{field}.completion"):
                return problem
            if not answer and embedded:
                return Problem("bad_messages", f"{field}.completion", "it has no message")
            rank = completion.get("rank")
            if not isinstance(rank, (int, float, str)) or (embedded and isinstance(rank, bool)):
                return Problem("bad_rank", f"{field}.rank", f"it is {rank!r}")
            assert isinstance(answer, list)
            ranks.append(rank)
            sides.append(answer)
        if embedded and isinstance(ranks[0], str) != isinstance(ranks[1], str):
            return Problem("bad_rank", "completions[].rank", "one is a number, the other a text")
        if ranks[0] == ranks[1]:
            return Problem("tie", "completions[].rank", f"both are {ranks[0]!r}")
        assert isinstance(context, list)
        return _pair(context, *sides)

    return rule


def binary_rule(prompt_key: str, chosen_key: str, rejected_key: str) -> RowRule:
    """Rows of `BinaryPreferenceDataset`."""

    def rule(row: dict[str, Any]) -> Problem | Content:
        prompt = row.get(prompt_key)
        if isinstance(prompt, list):
            if problem := _messages(prompt, prompt_key):
                return problem
            context = prompt
        else:
            if problem := _text(prompt, prompt_key, prompt_key in row):
                return problem
            context = [{"role": "user", "content": prompt}]
        for key in (chosen_key, rejected_key):
            if problem := _text(row.get(key), key, key in row):
                return problem
        return _pair(
            context,
            [{"role": "assistant", "content": row[chosen_key]}],
            [{"role": "assistant", "content": row[rejected_key]}],
        )

    return rule


def chat_rule(chat_key: str, system_key: str | None, system_prompt: str | None) -> RowRule:
    """Rows of `openai_format`."""
    has_system = False

    def rule(row: dict[str, Any]) -> Problem | Content:
        nonlocal has_system
        messages = row.get(chat_key)
        if problem := _messages(messages, chat_key):
            return problem
        if not messages:
            return Problem("bad_messages", chat_key, "it has no message")
        assert isinstance(messages, list)
        if messages[-1]["role"] != "assistant":
            return Problem("last_not_assistant", f"{chat_key}[-1].role", f"it is {messages[-1]['role']!r}")
        before: list[Message] = []
        has_system = has_system or (system_key is not None and system_key in row)
        if has_system:
            assert system_key is not None
            if problem := _text(row.get(system_key), system_key, system_key in row):
                return problem
            before = [{"role": "system", "content": row[system_key]}]
        elif system_prompt:
            before = [{"role": "system", "content": system_prompt}]
        return Content(_digest(messages[:-1]), ([*before, *messages],))

    return rule


def response_rule(input_key: str, output_key: str, rl: bool, mixed_types: bool) -> RowRule:
    """Rows of `ResponseDataset`: `messages`, or an input with its output.

    mixed_types: the loader may put texts and other values into one column, so that an output need not be text.
    """
    as_messages: bool | None = None

    def rule(row: dict[str, Any]) -> Problem | Content:
        nonlocal as_messages
        if as_messages is None:
            as_messages = "messages" in row
        if as_messages:
            return _question_and_truth(row.get("messages")) if rl else _conversation(row.get("messages"))
        question, answer = row.get(input_key), row.get(output_key)
        if problem := _text(question, input_key, input_key in row):
            return problem
        asked = [{"role": "user", "content": question}]
        if not rl:
            if problem := _text(answer, output_key, output_key in row):
                return problem
            return Content(_digest(asked), ([*asked, {"role": "assistant", "content": answer}],))
        if answer is None:
            return Content(_digest(asked), (asked,), "null_output")
        if not isinstance(answer, str):
            if not mixed_types:
                return Problem("not_text", output_key, f"it is {_kind(answer)}")
            return Content(_digest(asked), (asked,), "no_text_output")
        return Content(_digest(asked), (asked,))

    return rule


def benchmark_rule(problem_key: str, solution_key: str) -> RowRule:
    """Rows of a local benchmark; a solution is turned into text, whatever it is."""

    def rule(row: dict[str, Any]) -> Problem | Content:
        problem = row.get(problem_key)
        if wrong := _text(problem, problem_key, problem_key in row):
            return wrong
        if solution_key not in row:
            return Problem("missing_field", solution_key, "it is not there")
        asked = [{"role": "user", "content": problem}]
        return Content(_digest(asked), (asked,), "null_output" if row[solution_key] is None else "")

    return rule


def _pair(context: list[Message], first: list[Message], second: list[Message]) -> Content:
    note = ""
    if not first or not second or not first[-1]["content"] or not second[-1]["content"]:
        note = "empty_completion"
    elif first == second:
        note = "identical_sides"
    return Content(_digest(context), (context + first, context + second), note)


def _conversation(messages: Any) -> Problem | Content:
    if problem := _messages(messages, "messages"):
        return problem
    if not messages:
        return Problem("bad_messages", "messages", "it has no message")
    note = "" if any(message["role"] == "assistant" for message in messages) else "no_assistant"
    return Content(_digest(messages[:-1]), (messages,), note)


def _question_and_truth(messages: Any) -> Problem | Content:
    """The first message is the prompt, the second what its answer is judged by."""
    if not isinstance(messages, list):
        return _absent("messages", messages, "a list of messages")
    if len(messages) < 2 or not all(isinstance(message, dict) for message in messages[:2]):
        return Problem("bad_messages", "messages", "it has no second message, by which the answer is judged")
    if problem := _text(messages[0].get("content"), "messages[0].content", "content" in messages[0]):
        return problem
    asked = [{"role": "user", "content": messages[0]["content"]}]
    truth = messages[1].get("content")
    return Content(_digest(asked), (asked,), "null_output" if truth is None else "")


def _messages(value: Any, field: str) -> Problem | None:
    if not isinstance(value, list):
        return _absent(field, value, "a list of messages")
    for index, message in enumerate(value):
        if type(message) is not dict:
            return Problem("bad_messages", f"{field}[{index}]", f"it is {_kind(message)}")
        if type(message.get("role")) is not str:
            return Problem("bad_messages", f"{field}[{index}].role", f"it is {_kind(message.get('role'))}")
        content = message.get("content")
        if type(content) is str or (content is None and message.get("tool_calls")):
            continue
        if isinstance(content, list):
            return Problem("content_parts", f"{field}[{index}].content", "it is a list of parts")
        return _text(content, f"{field}[{index}].content", "content" in message)
    return None


def _text(value: Any, field: str, there: bool) -> Problem | None:
    if isinstance(value, str):
        return None
    if value is None:
        return Problem("null_text" if there else "missing_field", field, "it is null" if there else "it is not there")
    return Problem("not_text", field, f"it is {_kind(value)}")


def _absent(field: str, value: Any, wanted: str) -> Problem:
    if value is None:
        return Problem("missing_field", field, "it is not there, or null")
    return Problem("bad_messages", field, f"it is {_kind(value)}, not {wanted}")


def _kind(value: Any) -> str:
    names = {
        bool: "a truth value",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "an object",
    }
    return "null" if value is None else names.get(type(value), type(value).__name__)


def _digest(messages: list[Message]) -> int:
    """Equal prompts have equal numbers; only within this process."""
    return hash(tuple((message.get("role"), message.get("content")) for message in messages))
