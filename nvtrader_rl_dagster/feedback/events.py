"""Feedback events: what a person said about a model's answer, and the row form used for export and re-import."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, NamedTuple, TypeAlias

import orjson

from nvtrader_rl_dagster.feedback.messages import Message, check_answer, check_prompt, to_messages
from nvtrader_rl_dagster.feedback.reasons import RowRejected

KINDS = ("preference", "decision", "undo")
VERDICTS = ("approve", "reject")
ONE_VOTE = (1, 0, 0)
TIE = (0, 0, 1)
Votes: TypeAlias = tuple[int, int, int]
Text: TypeAlias = "str | Message | Sequence[Message]"

_ROW_KEYS = (
    "event_id", "kind", "prompt", "chosen", "rejected", "response", "edit", "verdict", "target",
    "source", "agent", "reviewer", "ts",
)  # fmt: skip
_NAME_LIMIT = 300
_TS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.(?:\d{3}|\d{6}))?(?:Z|[+-]\d\d:\d\d)?")


@dataclass(frozen=True, slots=True)
class FeedbackEvent:
    """One judgement. Make it with `preference`, `decision` or `undo`, which validate.

    votes: (for, against, tie) of the people behind a preference; a tie is (0, 0, 1) and chosen/rejected are then
    only the two sides. ts: ISO 8601 in UTC. target: the event_id that an undo takes back.
    """

    event_id: str
    kind: str
    prompt: list[Message]
    chosen: list[Message] | None = None
    rejected: list[Message] | None = None
    response: list[Message] | None = None
    edit: list[Message] | None = None
    verdict: str | None = None
    votes: Votes = ONE_VOTE
    target: str | None = None
    source: str = ""
    agent: str | None = None
    reviewer: str | None = None
    ts: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The row form: every field that is set, JSON values only. `from_dict` gives an equal event."""
        row: dict[str, Any] = {}
        for key in _ROW_KEYS:
            value = getattr(self, key)
            if value is not None:
                row[key] = value
        if self.kind == "undo":
            del row["prompt"]
        if self.kind == "preference":
            row["votes"] = list(self.votes)
        if self.metadata:
            row["metadata"] = self.metadata
        return row

    @staticmethod
    def from_dict(row: Mapping[str, Any]) -> FeedbackEvent:
        """An event from its row form, validated strictly. Raises RowRejected (bad_event and the text reasons)."""
        kind = row.get("kind")
        if not isinstance(kind, str) or kind not in _MAKERS:
            raise RowRejected("bad_event", "kind", f"found {kind!r:.40}, expected one of {', '.join(KINDS)}")
        given = {key: value for key, value in row.items() if key != "kind" and value is not None}
        for key in given:
            if key not in _ALLOWED[kind]:
                raise RowRejected("bad_event", str(key)[:80], f"not a field of a {kind} event")
        for key in _REQUIRED[kind]:
            if key not in given:
                raise RowRejected("missing_context" if key == "prompt" else "bad_event", key, "missing")
        event: FeedbackEvent = _MAKERS[kind](**given)
        return event

    @staticmethod
    def from_stored(payload: str | bytes) -> FeedbackEvent:
        """An event from the JSON the store wrote; not validated again."""
        row = orjson.loads(payload)
        row.setdefault("prompt", [])
        if "votes" in row:
            row["votes"] = tuple(row["votes"])
        return FeedbackEvent(**row)

    def same_content(self, other: FeedbackEvent) -> bool:
        """Whether both say the same, whatever their id, source, time and metadata are."""
        return _content(self) == _content(other)


class StoredEvent(NamedTuple):
    """An event with its place in the store. undone: an undo event names it."""

    seq: int
    event: FeedbackEvent
    prompt_hash: str
    undone: bool = False


def preference(
    prompt: Text,
    chosen: Text,
    rejected: Text,
    *,
    votes: Sequence[int] = ONE_VOTE,
    event_id: str | None = None,
    source: str = "PreferenceRecorded",
    agent: str | None = None,
    reviewer: str | None = None,
    ts: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> FeedbackEvent:
    """A comparison of two answers to one prompt. Raises RowRejected when it is not one."""
    context = _prompt(prompt)
    better = to_messages(chosen, "assistant", "chosen")
    worse = to_messages(rejected, "assistant", "rejected")
    check_answer(better, "chosen", "empty_chosen")
    check_answer(worse, "rejected", "empty_rejected")
    if better == worse:
        raise RowRejected("identical", "rejected", "same text as chosen")
    return _event(
        event_id, ts, metadata, kind="preference", prompt=context, chosen=better, rejected=worse,
        votes=_votes(votes), source=source, agent=agent, reviewer=reviewer,
    )  # fmt: skip


def decision(
    prompt: Text,
    response: Text,
    verdict: str,
    *,
    edit: Text | None = None,
    event_id: str | None = None,
    source: str = "PreferenceRecorded",
    agent: str | None = None,
    reviewer: str | None = None,
    ts: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> FeedbackEvent:
    """An approval or rejection of one answer, with the person's own version if there is one.

    An empty edit is no edit. Raises RowRejected when a field is invalid.
    """
    if verdict not in VERDICTS:
        raise RowRejected("bad_event", "verdict", f"found {verdict!r:.40}, expected approve or reject")
    context = _prompt(prompt)
    answer = to_messages(response, "assistant", "response")
    check_answer(answer, "response", "empty_response")
    edited = None
    if edit is not None and not (isinstance(edit, str) and not edit.strip()):
        edited = to_messages(edit, "assistant", "edit")
        check_answer(edited, "edit", "bad_event")
    return _event(
        event_id, ts, metadata, kind="decision", prompt=context, response=answer, edit=edited,
        verdict=verdict, source=source, agent=agent, reviewer=reviewer,
    )  # fmt: skip


def undo(
    target: str,
    *,
    event_id: str | None = None,
    source: str = "PreferenceRecorded",
    agent: str | None = None,
    reviewer: str | None = None,
    ts: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> FeedbackEvent:
    """Takes back the preference or decision with event_id `target`. An undo itself cannot be undone."""
    _check_name(target, "target")
    return _event(
        event_id, ts, metadata, kind="undo", prompt=[], target=target, source=source, agent=agent,
        reviewer=reviewer,
    )  # fmt: skip


def canonical_json(value: object) -> bytes:
    """JSON with sorted keys, no spaces, UTF-8. Raises TypeError for what JSON text cannot carry."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def prompt_hash(prompt: list[Message]) -> str:
    """SHA-256 hex of the canonical JSON of the prompt's messages; no Unicode normalisation."""
    return hashlib.sha256(canonical_json(prompt)).hexdigest()


def _prompt(prompt: Text | None) -> list[Message]:
    if prompt is None:
        raise RowRejected("missing_context", "prompt", "missing")
    context = to_messages(prompt, "user", "prompt")
    check_prompt(context)
    return context


def _event(event_id: str | None, ts: str | None, metadata: dict[str, Any] | None, **fields: Any) -> FeedbackEvent:
    for key in ("source", "agent", "reviewer"):
        if fields[key] is not None:
            _check_name(fields[key], key)
    when = None if ts is None else _utc(ts)
    try:
        if event_id is None:
            content = {key: value for key, value in fields.items() if value is not None and key != "source"}
            if when is not None:
                content["ts"] = when
            event_id = hashlib.sha256(canonical_json(content)).hexdigest()
        else:
            _check_name(event_id, "event_id")
            canonical_json(fields)
    except TypeError as error:
        raise RowRejected("lone_surrogate", None, str(error)) from None
    return FeedbackEvent(
        event_id=event_id,
        ts=when if when is not None else now(),
        metadata={} if metadata is None else _metadata(metadata),
        **fields,
    )


def _content(event: FeedbackEvent) -> tuple[Any, ...]:
    return (
        event.kind, event.prompt, event.chosen, event.rejected, event.response, event.edit, event.verdict,
        event.votes, event.target, event.agent, event.reviewer,
    )  # fmt: skip


def _votes(votes: Sequence[int]) -> Votes:
    if votes is ONE_VOTE:
        return ONE_VOTE
    fits = isinstance(votes, (list, tuple)) and len(votes) == 3
    if not fits or not all(type(n) is int and 0 <= n <= 1_000_000 for n in votes) or not any(votes):
        raise RowRejected("bad_event", "votes", "expected three counts (for, against, tie) with at least one vote")
    return (votes[0], votes[1], votes[2])


def _check_name(value: object, field_name: str) -> None:
    """An id or name is short text that any database can hold."""
    if not isinstance(value, str) or not value or len(value) > _NAME_LIMIT or "\x00" in value:
        raise RowRejected("bad_event", field_name, f"expected text of 1 to {_NAME_LIMIT} characters without NUL")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RowRejected("lone_surrogate", field_name) from None


def _metadata(metadata: object) -> dict[str, Any]:
    try:
        copy = orjson.loads(orjson.dumps(metadata))
    except (TypeError, RecursionError) as error:
        raise RowRejected("bad_event", "metadata", f"not JSON: {error}") from None
    if not isinstance(copy, dict) or copy != metadata:
        raise RowRejected("bad_event", "metadata", "expected an object of JSON values without NaN")
    return copy


def _utc(ts: object) -> str:
    """ISO 8601 in UTC with a trailing Z; a time without offset is taken as UTC."""
    if not isinstance(ts, str) or not _TS.fullmatch(ts):
        raise RowRejected("bad_event", "ts", f"found {ts!r:.40}, expected YYYY-MM-DDTHH:MM:SSZ")
    try:
        when = datetime.fromisoformat(ts.replace("Z", "+00:00"))
        when = when.replace(tzinfo=timezone.utc) if when.tzinfo is None else when.astimezone(timezone.utc)
    except (ValueError, OverflowError) as error:
        raise RowRejected("bad_event", "ts", str(error)) from None
    return when.isoformat().replace("+00:00", "Z")


def now() -> str:
    """The time as the store writes it: ISO 8601 in UTC to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


_COMMON = ("event_id", "source", "agent", "reviewer", "ts", "metadata")
_MAKERS: dict[str, Any] = {"preference": preference, "decision": decision, "undo": undo}
_REQUIRED = {
    "preference": ("prompt", "chosen", "rejected"),
    "decision": ("prompt", "response", "verdict"),
    "undo": ("target",),
}
_ALLOWED = {
    "preference": {*_COMMON, *_REQUIRED["preference"], "votes"},
    "decision": {*_COMMON, *_REQUIRED["decision"], "edit"},
    "undo": {*_COMMON, "target"},
}
