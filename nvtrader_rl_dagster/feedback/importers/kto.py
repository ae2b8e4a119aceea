"""KTO rows: an answer with a true/false label, as `prompt` and `completion` or as `messages`."""

from __future__ import annotations

from nvtrader_rl_dagster.feedback.events import decision
from nvtrader_rl_dagster.feedback.importers.base import ImportOptions, Outcome, Row, named, prompt_of, with_system
from nvtrader_rl_dagster.feedback.messages import Message, to_messages
from nvtrader_rl_dagster.feedback.reasons import RowRejected

_LABELS = {"true": "approve", "1": "approve", "false": "reject", "0": "reject"}
_ANSWER_KEYS = ("completion", "response", "output")


def read(row: Row, options: ImportOptions, source: str) -> list[Outcome]:
    """One decision."""
    verdict = verdict_of(row)
    if "messages" in row:
        if row["messages"] is None:
            raise RowRejected("missing_context", "messages", "null")
        prompt, answer = last_answer(to_messages(row["messages"], "user", "messages"), "messages")
        return [named({"prompt": "messages"}, decision, with_system(row, prompt), answer, verdict, source=source)]
    key = next((key for key in _ANSWER_KEYS if key in row), "completion")
    return [named({"response": key}, decision, prompt_of(row), row.get(key), verdict, source=source)]


def verdict_of(row: Row) -> str:
    """`label` as a verdict: true/false in any case, or 1/0."""
    label = row.get("label")
    text = str(label).strip().lower() if isinstance(label, (bool, int, str)) else ""
    if text not in _LABELS:
        raise RowRejected("bad_label", "label", f"found {label!r:.40}")
    return _LABELS[text]


def last_answer(turns: list[Message], field: str) -> tuple[list[Message], list[Message]]:
    """The conversation up to its last turn, and that turn, which must be the assistant's."""
    if not turns:
        raise RowRejected("empty_prompt", field, "no turns")
    if turns[-1]["role"] != "assistant":
        raise RowRejected("bad_role", f"{field}[{len(turns) - 1}].role", "the last turn is not the assistant's")
    return turns[:-1], turns[-1:]
