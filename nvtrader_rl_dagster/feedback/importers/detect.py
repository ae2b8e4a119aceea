"""Which format a row has, by its keys."""

from __future__ import annotations

from nvtrader_rl_dagster.feedback.events import KINDS
from nvtrader_rl_dagster.feedback.importers.base import Row
from nvtrader_rl_dagster.feedback.importers.transcripts import is_transcript
from nvtrader_rl_dagster.feedback.reasons import RowRejected

_PROMPTS = ("prompt", "question", "instruction")


def detect(row: Row) -> str:
    """The name of the row's format. Raises RowRejected (unknown_shape)."""
    keys = row.keys()
    if row.get("kind") in KINDS or {"kind", "event_id"} <= keys:
        return "events"
    if "completions" in keys:
        return "nemo_rank"
    if "overall_preference" in keys:
        return "helpsteer3"
    if "response1" in keys and any(key.startswith("annotator") for key in keys):
        return "pandalm"
    if "conversations" in keys:
        return "sharegpt"
    if {"chosen", "rejected"} & keys or {"chosen_messages", "rejected_messages"} <= keys:
        if "messages" in keys:
            return "sharegpt"
        without_prompt = not any(key in keys for key in _PROMPTS)
        return "hh" if without_prompt and is_transcript(row.get("chosen")) else "trl"
    if "label" in keys and ("messages" in keys or any(key in keys for key in _PROMPTS)):
        return "kto"
    raise RowRejected("unknown_shape", None, f"keys: {', '.join(sorted(keys))[:200] or 'none'}")
