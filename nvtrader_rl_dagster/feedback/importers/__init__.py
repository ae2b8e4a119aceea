"""The feedback formats: their names, how each is recognised, and the function that reads a row of it."""

from __future__ import annotations

from typing import NamedTuple

from nvtrader_rl_dagster.feedback.importers import (
    events,
    helpsteer3,
    kto,
    nemo_rank,
    pandalm,
    sharegpt,
    transcripts,
    trl,
)
from nvtrader_rl_dagster.feedback.importers.base import Importer, ImportOptions, Outcome, Row
from nvtrader_rl_dagster.feedback.importers.detect import detect
from nvtrader_rl_dagster.feedback.messages import has_tool_turns, text_length
from nvtrader_rl_dagster.feedback.reasons import RowRejected


class Format(NamedTuple):
    """A feedback format. read: one row into events."""

    description: str
    read: Importer


FORMATS: dict[str, Format] = {
    "events": Format("our own events, as `feedback export` writes them", events.read),
    "nemo_rank": Format("NeMo-RL: context and completions with ranks, 0 is best", nemo_rank.read),
    "helpsteer3": Format("HelpSteer3: context, response1, response2, overall_preference -3 to 3", helpsteer3.read),
    "trl": Format("TRL: chosen and rejected, with a prompt or as whole conversations", trl.read),
    "kto": Format("KTO: prompt, completion and a true/false label, or messages and a label", kto.read),
    "sharegpt": Format("ShareGPT: conversations with from/value, and chosen/rejected or a label", sharegpt.read),
    "hh": Format("HH: chosen and rejected transcripts with Human: and Assistant:", transcripts.read),
    "pandalm": Format("PandaLM: instruction, two responses, annotator1..n (0 tie, 1, 2)", pandalm.read),
}
_MEDIA_KEYS = frozenset({"image", "images", "video", "videos", "audio", "audios"})


def read_row(
    value: object, options: ImportOptions, *, name: str = "auto", source: str = ""
) -> tuple[str, list[Outcome]]:
    """The format's name and the events of one row; refused decisions of the row stand as RowRejected in the list.

    `source` replaces the source of the events; by default it is the format's name, and our own events keep theirs.
    Raises RowRejected when the whole row is refused.
    """
    if not isinstance(value, dict):
        raise RowRejected("unknown_shape", None, f"found {type(value).__name__}, expected an object")
    if name == "auto":
        name = detect(value)
    for key in _MEDIA_KEYS & value.keys():
        if value[key]:
            raise RowRejected("unsupported_modality", key)
    by = source if source or name == "events" else name
    return name, [_checked(outcome, options) for outcome in FORMATS[name].read(value, options, by)]


def _checked(outcome: Outcome, options: ImportOptions) -> Outcome:
    """The limits that are settings: length and tool calls."""
    if isinstance(outcome, RowRejected):
        return outcome
    answers = [a for a in (outcome.chosen, outcome.rejected, outcome.response, outcome.edit) if a is not None]
    size = text_length(outcome.prompt) + (max([text_length(answer) for answer in answers]) if answers else 0)
    if size > options.max_chars:
        return RowRejected("too_long", None, f"{size} characters, the limit is {options.max_chars}")
    if options.tool_calls == "refuse" and any(map(has_tool_turns, (outcome.prompt, *answers))):
        return RowRejected("tool_calls_unsupported", None, "tool calls are refused by setting")
    return outcome


__all__ = ["FORMATS", "Format", "ImportOptions", "Importer", "Outcome", "Row", "detect", "read_row"]
