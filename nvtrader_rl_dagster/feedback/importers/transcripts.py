"""HH transcripts: one text with turns marked `Human:` and `Assistant:`."""

from __future__ import annotations

import re

from nvtrader_rl_dagster.feedback.events import preference
from nvtrader_rl_dagster.feedback.importers.base import ImportOptions, Outcome, Row, with_system
from nvtrader_rl_dagster.feedback.messages import Message
from nvtrader_rl_dagster.feedback.reasons import RowRejected

_MARK = re.compile(r"\n\n(Human|Assistant):")
_ROLES = {"Human": "user", "Assistant": "assistant"}


def turns_of(text: str) -> list[Message] | None:
    """The turns of a transcript that starts with the human; None for other text.

    Exactly one space after each mark belongs to the mark; everything else belongs to the turn.
    """
    parts = _MARK.split(text if text.startswith("\n\n") else "\n\n" + text)
    if parts[0] or len(parts) < 3 or parts[1] != "Human":
        return None
    return [
        {"role": _ROLES[mark], "content": content.removeprefix(" ")}
        for mark, content in zip(parts[1::2], parts[2::2], strict=True)
    ]


def is_transcript(text: object) -> bool:
    """Whether `text` starts with a `Human:` mark and holds an `Assistant:` mark."""
    if not isinstance(text, str) or "\n\nAssistant:" not in text:
        return False
    return text.startswith(("\n\nHuman:", "Human:"))


def read(row: Row, options: ImportOptions, source: str) -> list[Outcome]:
    """Two transcripts that differ in their last turn; the prompt ends at the last `Assistant:`."""
    sides = []
    for key in ("chosen", "rejected"):
        if not isinstance(row.get(key), str):
            raise RowRejected("not_text", key, f"found {type(row.get(key)).__name__}")
        turns = turns_of(row[key])
        if turns is None or turns[-1]["role"] != "assistant":
            raise RowRejected("no_prompt_boundary", key, "no transcript that ends with Assistant:")
        sides.append(turns)
    chosen, rejected = sides
    if chosen[:-1] != rejected[:-1]:
        raise RowRejected("prompt_mismatch", "rejected", "the turns before the last Assistant: differ")
    prompt = with_system(row, chosen[:-1])
    return [preference(prompt, chosen[-1:], rejected[-1:], source=source)]
