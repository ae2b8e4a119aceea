"""The champion pointer: one file, replaced atomically, with its whole history inside."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from nvtrader_rl_dagster.files import read_json, write_json


@dataclass(frozen=True)
class Champion:
    """A promoted checkpoint. `previous` is the champion that it replaced, None for the base model."""

    checkpoint_id: str
    path: str
    base_model: str
    weights_sha256: str
    promoted: str
    accuracy: float
    reason: str
    previous: str | None


@dataclass(frozen=True)
class Change:
    """One line of history."""

    what: Literal["promoted", "rolled_back"]
    ts: str
    checkpoint_id: str | None
    replaced: str | None
    reason: str


class ChampionStore:
    """Reads and changes the champion below `root`. Safe with several processes."""

    def __init__(self, root: Path) -> None:
        self._file = root / "champion.json"
        self._lock = root / ".lock"

    def current(self) -> Champion | None:
        """The champion, or None while the base model serves."""
        state = self._state()
        found = state["champions"].get(state["current"])
        return Champion(**found) if found else None

    def history(self) -> list[Change]:
        """Promotions and rollbacks, oldest first."""
        return [Change(**change) for change in self._state()["history"]]

    def was_rolled_back(self, checkpoint_id: str) -> bool:
        """A person took this one back; nothing automatic may bring it back."""
        return any(c.what == "rolled_back" and c.replaced == checkpoint_id for c in self.history())

    def promote(self, champion: Champion) -> None:
        """Make `champion` the current one. Its `previous` must be the current one.

        Raises `ValueError` when another promotion came in between, so that a decision that compared
        with an older champion never replaces a newer one.
        """
        with self._locked() as state:
            if state["current"] != champion.previous:
                raise ValueError(
                    f"the champion is {state['current']} now, not {champion.previous}: materialize eval_scores again"
                )
            state["champions"][champion.checkpoint_id] = asdict(champion)
            self._change(
                state,
                Change(
                    "promoted",
                    champion.promoted,
                    champion.checkpoint_id,
                    champion.previous,
                    champion.reason,
                ),
            )

    def rollback(self, ts: str, reason: str) -> Champion | None:
        """Go back to the champion before the current one (None: the base model serves again).

        Raises `LookupError` when there is no champion.
        """
        with self._locked() as state:
            current = state["champions"].get(state["current"])
            if current is None:
                raise LookupError("there is no champion to roll back from; the base model serves")
            self._change(
                state,
                Change("rolled_back", ts, current["previous"], current["checkpoint_id"], reason),
            )
        return self.current()

    def _change(self, state: dict[str, Any], change: Change) -> None:
        state["current"] = change.checkpoint_id
        state["history"].append(asdict(change))
        write_json(self._file, state)

    def _state(self) -> dict[str, Any]:
        if not self._file.exists():
            return {"current": None, "champions": {}, "history": []}
        state: dict[str, Any] = read_json(self._file)
        return state

    @contextmanager
    def _locked(self) -> Iterator[dict[str, Any]]:
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with self._lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self._state()
