"""TRL preference rows: `chosen` and `rejected`, with the prompt explicit, or implicit in both conversations."""

from __future__ import annotations

from nvtrader_rl_dagster.feedback.events import preference
from nvtrader_rl_dagster.feedback.importers import transcripts
from nvtrader_rl_dagster.feedback.importers.base import ImportOptions, Outcome, Row, prompt_of, with_system
from nvtrader_rl_dagster.feedback.messages import Message, to_messages
from nvtrader_rl_dagster.feedback.reasons import RowRejected

_PROMPT_KEYS = ("prompt", "question", "instruction")


def read(row: Row, options: ImportOptions, source: str) -> list[Outcome]:
    """One comparison. Plain texts without a prompt are refused: no rule finds the boundary for certain."""
    chosen, rejected = _side(row, "chosen"), _side(row, "rejected")
    if any(key in row for key in _PROMPT_KEYS):
        prompt = prompt_of(row)
        if transcripts.is_transcript(row.get("prompt")):
            prompt, chosen, rejected = _transcript_prompt(row, chosen, rejected)
        else:
            chosen = _strip_prompt(prompt, chosen, "chosen")
            rejected = _strip_prompt(prompt, rejected, "rejected")
    elif isinstance(row.get("chosen"), str) or isinstance(row.get("rejected"), str):
        if not transcripts.is_transcript(row.get("chosen")) and not transcripts.is_transcript(row.get("rejected")):
            raise RowRejected("no_prompt_boundary", "prompt", "chosen and rejected are plain texts")
        return transcripts.read(row, options, source)
    else:
        prompt, chosen, rejected = _common_prompt(chosen, rejected)
        prompt = with_system(row, prompt)
    return [preference(prompt, chosen, rejected, source=source)]


def _side(row: Row, key: str) -> list[Message]:
    return to_messages(row.get(key, row.get(f"{key}_messages")), "assistant", key)


def _strip_prompt(prompt: list[Message], side: list[Message], field: str) -> list[Message]:
    """The answer out of a side that repeats the prompt's turns."""
    if not side or side[0]["role"] == "assistant":
        return side
    if len(side) > len(prompt) and side[: len(prompt)] == prompt:
        return side[len(prompt) :]
    if side[-1]["role"] != "assistant":
        raise RowRejected("bad_role", f"{field}[{len(side) - 1}].role", f"found {side[-1]['role']}")
    raise RowRejected("prompt_mismatch", field, "its first turns are not the prompt")


def _common_prompt(
    chosen: list[Message], rejected: list[Message]
) -> tuple[list[Message], list[Message], list[Message]]:
    """The longest common start of both conversations as prompt, and what is left of each."""
    if chosen == rejected:
        raise RowRejected("identical", "rejected", "same conversation as chosen")
    length = 0
    for one, other in zip(chosen, rejected, strict=False):
        if one != other:
            break
        length += 1
    if length == 0 and chosen and rejected and chosen[0]["role"] == rejected[0]["role"] == "assistant":
        raise RowRejected("no_prompt_boundary", "prompt", "neither side holds a prompt")
    for side in (chosen, rejected):
        if side and (len(side) == length or side[length]["role"] != "assistant"):
            raise RowRejected("prompt_mismatch", "rejected", "the sides differ before the answer")
    return chosen[:length], chosen[length:], rejected[length:]


def _transcript_prompt(
    row: Row, chosen: list[Message], rejected: list[Message]
) -> tuple[list[Message], list[Message], list[Message]]:
    """An explicit prompt that is a transcript; the sides may repeat it."""
    prompt = transcripts.turns_of(row["prompt"]) or []
    if prompt and prompt[-1] == {"role": "assistant", "content": ""}:
        prompt = prompt[:-1]
    answers = []
    for key, side in (("chosen", chosen), ("rejected", rejected)):
        if not isinstance(row.get(key), str):
            answers.append(_strip_prompt(prompt, side, key))
            continue
        turns = transcripts.turns_of(row[key])
        if turns is None:
            answers.append([{"role": "assistant", "content": row[key].removeprefix(" ")}])
        elif turns[:-1] == prompt:
            answers.append(turns[-1:])
        else:
            raise RowRejected("prompt_mismatch", key, "its turns are not the prompt's")
    return with_system(row, prompt), answers[0], answers[1]
