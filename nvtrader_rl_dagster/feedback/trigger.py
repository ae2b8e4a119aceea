"""When a training starts: what was requested so far, the counts since then, and the decision. Pure.

A window is the feedback of one store up to a sequence number. Two counts run side by side: usable pairs since the
newest trained window (`base`) and since the newest requested one (`fired`); they differ while a window is open or
has failed. The cursor only saves counting again: what was requested and trained is read from files and runs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

import orjson

_VERSION = 1


@dataclass(frozen=True)
class Window:
    """The feedback of one store up to and including an event."""

    ledger_id: str
    through_seq: int

    @property
    def key(self) -> str:
        return f"{self.ledger_id}:{self.through_seq}"

    @classmethod
    def parse(cls, key: str | None) -> Window | None:
        """The window with this key; None for any other text."""
        ledger_id, _, seq = (key or "").rpartition(":")
        return cls(ledger_id, int(seq)) if ledger_id and seq.isdecimal() else None


class Outcome(str, Enum):
    """What became of a requested window; the first one counts where sources disagree.

    open: it trains, waits, or will be retried. spent: trained, or gone without a trace.
    """

    OPEN = "open"
    CANCELLED = "cancelled"
    FAILED = "failed"
    SPENT = "spent"


@dataclass(frozen=True)
class Request:
    """A window that was requested. detail: why it failed, as one line."""

    through_seq: int = 0
    outcome: Outcome = Outcome.SPENT
    detail: str = ""


def newest(*requests: Request | None) -> Request:
    """The request that reaches furthest; of several sources about it the one whose outcome counts first."""
    found = [request for request in requests if request is not None] or [Request()]
    through = max(request.through_seq for request in found)
    order = list(Outcome)
    return min((r for r in found if r.through_seq == through), key=lambda r: order.index(r.outcome))


@dataclass(frozen=True)
class Standing:
    """What files and runs say about one store.

    trained: end of the newest window that a model was trained on. request: the newest window that was requested.
    busy: the training in flight, in words; empty when there is none.
    """

    trained: int = 0
    request: Request = Request()
    busy: str = ""


@dataclass(frozen=True)
class Cursor:
    """How far the sensor counted. pending, newer: usable pairs at `seq` that were none at `base`, at `fired`."""

    ledger_id: str
    base: int = 0
    seq: int = 0
    pending: int = 0
    fired: int = 0
    newer: int = 0

    @classmethod
    def load(cls, text: str | None, ledger_id: str) -> Cursor:
        """The stored cursor; a fresh one when there is none, or it belongs to another store or version."""
        try:
            raw: Any = orjson.loads(text or "{}")
        except orjson.JSONDecodeError:
            raw = {}
        if not isinstance(raw, dict) or raw.pop("v", None) != _VERSION or raw.get("ledger_id") != ledger_id:
            return cls(ledger_id)
        return cls(**raw)

    def dump(self) -> str:
        return orjson.dumps({"v": _VERSION, **asdict(self)}).decode()

    def settled(self, standing: Standing) -> Cursor:
        """The cursor with both bases where they belong; counts that do not fit them any more start again at `base`."""
        request = newest(standing.request, Request(self.fired))
        fired = max(request.through_seq, standing.trained)
        if fired == standing.trained or request.outcome in (Outcome.CANCELLED, Outcome.SPENT):
            base = fired
        else:
            base = max(self.base, standing.trained)
        if (base, fired) == (self.base, self.fired):
            return self
        if base == fired == self.fired and self.seq >= fired:
            return replace(self, base=base, pending=self.newer)
        if base == self.base and self.seq <= fired:
            return replace(self, fired=fired, newer=0)
        return Cursor(self.ledger_id, base=base, seq=base, fired=fired)

    def requested(self) -> Cursor:
        """The cursor after its `seq` was requested."""
        return replace(self, fired=self.seq, newer=0)


@dataclass(frozen=True)
class Decision:
    """Whether a training starts now, and where the count stands, in words."""

    fire: bool
    reason: str


def decide(cursor: Cursor, standing: Standing, last_seq: int, threshold: int, retry_pairs: int) -> Decision:
    """Whether to request the window up to `cursor.seq`. The cursor is settled, last_seq the end of the store.

    Fires at `threshold` pairs, with nothing in flight and everything counted; after a failed window only with
    `retry_pairs` pairs that are newer than it, so that the same feedback is never requested twice.
    """
    unsettled = cursor.fired > cursor.base
    outcome = standing.request.outcome
    failed = unsettled and outcome is Outcome.FAILED
    waiting = bool(standing.busy) or (unsettled and outcome is Outcome.OPEN)
    counted = cursor.newer if waiting and unsettled else cursor.pending
    said = [f"{counted} of {threshold} usable pairs"]
    if standing.busy:
        said.append(f"{standing.busy} in progress")
    if failed:
        said.append(f"{cursor.newer} of {retry_pairs} newer than the window that failed ({standing.request.detail})")
    if cursor.seq < last_seq:
        said.append(f"counted up to event {cursor.seq} of {last_seq}")
    if cursor.base > last_seq:
        said.append(f"event {cursor.base} was requested but the store ends at {last_seq}: is it an older copy?")
    enough = cursor.pending >= threshold and (not failed or cursor.newer >= retry_pairs)
    return Decision(enough and not waiting and cursor.seq == last_seq, "; ".join(said))
