"""What the importers share: options, the prompt of a row, and refusals that name the row's own fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from nvtrader_rl_dagster.feedback.events import FeedbackEvent
from nvtrader_rl_dagster.feedback.messages import Message, to_messages
from nvtrader_rl_dagster.feedback.reasons import RowRejected

Row: TypeAlias = dict[str, Any]
Outcome: TypeAlias = "FeedbackEvent | RowRejected"


@dataclass(frozen=True)
class ImportOptions:
    """How rows are read.

    ranks: what a row with more than two ranked answers becomes, one pair or all pairs. tool_calls: keep them as
    text, or refuse such rows. max_chars: limit for prompt and longest answer together.
    """

    ranks: Literal["best_vs_worst", "all_pairs"] = "best_vs_worst"
    tool_calls: Literal["keep", "refuse"] = "keep"
    max_chars: int = 200_000

    def __post_init__(self) -> None:
        if self.ranks not in ("best_vs_worst", "all_pairs"):
            raise ValueError(f"ranks: {self.ranks!r} is not best_vs_worst or all_pairs")
        if self.tool_calls not in ("keep", "refuse"):
            raise ValueError(f"tool_calls: {self.tool_calls!r} is not keep or refuse")


Importer: TypeAlias = Callable[[Row, ImportOptions, str], "list[Outcome]"]
"""Reads one row into events from `source`; RowRejected for the whole row, or in the list for one of its decisions."""


def named(names: dict[str, str], make: Callable[..., FeedbackEvent], *args: Any, **kwargs: Any) -> FeedbackEvent:
    """`make(...)`, with refusals that name the row's own fields instead of the event's."""
    try:
        return make(*args, **kwargs)
    except RowRejected as refused:
        raise refused.with_field_names(names) from None


def with_system(row: Row, prompt: list[Message]) -> list[Message]:
    """The prompt with the row's top-level `system` text as its first turn."""
    system = row.get("system")
    if system is None or system == "":
        return prompt
    if not isinstance(system, str):
        raise RowRejected("not_text", "system", f"found {type(system).__name__}")
    if prompt and prompt[0]["role"] == "system":
        raise RowRejected("bad_role", "system", "the prompt has a system turn of its own")
    return [{"role": "system", "content": system}, *prompt]


def instruction_text(row: Row) -> str:
    """`instruction`, and `input` on a line of its own if there is one."""
    text, extra = row.get("instruction"), row.get("input")
    if not isinstance(text, str):
        raise RowRejected("missing_context" if text is None else "not_text", "instruction")
    if extra is None or extra == "":
        return text
    if not isinstance(extra, str):
        raise RowRejected("not_text", "input", f"found {type(extra).__name__}")
    return f"{text}\n{extra}"


def prompt_of(row: Row) -> list[Message]:
    """The prompt of a row with `prompt`, `question` or `instruction` (and `input`, `history`, `system`)."""
    key = next((key for key in ("prompt", "question") if key in row), None)
    if key is None:
        prompt: list[Message] = [*_history(row), {"role": "user", "content": instruction_text(row)}]
    elif row[key] is None:
        raise RowRejected("missing_context", key, "null")
    else:
        prompt = to_messages(row[key], "user", key)
    return with_system(row, prompt)


def _history(row: Row) -> list[Message]:
    """Earlier turns of an instruction row: a list of [question, answer]."""
    turns: list[Message] = []
    history = row.get("history") or []
    if not isinstance(history, list):
        raise RowRejected("not_text", "history", "expected a list of [question, answer]")
    for i, pair in enumerate(history):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not all(isinstance(t, str) for t in pair):
            raise RowRejected("not_text", f"history[{i}]", "expected [question, answer]")
        turns += [{"role": "user", "content": pair[0]}, {"role": "assistant", "content": pair[1]}]
    return turns
