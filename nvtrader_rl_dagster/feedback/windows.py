"""How many usable pairs are new since a base: counted over the prompts that were touched, not over the whole store."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from nvtrader_rl_dagster.feedback.pair_report import SAMPLE_SOURCE
from nvtrader_rl_dagster.feedback.pairs import judge_prompt
from nvtrader_rl_dagster.feedback.store import FeedbackStore
from nvtrader_rl_dagster.feedback.trigger import Cursor


class Count(NamedTuple):
    """pairs: usable pairs at `through` that were none at `base`. It starts as `Count(base, base, 0)`."""

    base: int
    through: int
    pairs: int


def new_pairs(store: FeedbackStore, base: int, through: int, prompts: Collection[str]) -> int:
    """Usable pairs of these prompts at `through` that were none at `base`."""
    before = _pair_ids(store, base, prompts)
    return sum(len(ids - before.get(key, set())) for key, ids in _pair_ids(store, through, prompts).items())


def advance(store: FeedbackStore, count: Count, through: int) -> Count:
    """The count at a later `through`, exact, from the events since `count` alone.

    Its cost follows the number of those events and of all events on their prompts.
    """
    base, start, pairs = count
    if through <= start:
        return count
    prompts = store.touched_prompts(start, through)
    now = new_pairs(store, base, through, prompts)
    # Up to the first event of another source all pairs came from sample events; with it they are set aside.
    sample_goes = not _sample_is_dropped(store, start) and _sample_is_dropped(store, through)
    if start == base or sample_goes:
        return Count(base, through, now)
    return Count(base, through, pairs + now - new_pairs(store, base, start, prompts))


def counted(store: FeedbackStore, cursor: Cursor, through: int) -> Cursor:
    """The cursor with both of its counts at `through`."""
    if through < cursor.seq:  # an older copy of the store was put back
        cursor = replace(cursor, seq=cursor.base, pending=0, newer=0)
    pending = advance(store, Count(cursor.base, cursor.seq, cursor.pending), through)
    newer = pending
    if cursor.fired != cursor.base:
        newer = advance(store, Count(cursor.fired, max(cursor.seq, cursor.fired), cursor.newer), through)
    return replace(cursor, seq=pending.through, pending=pending.pairs, newer=newer.pairs)


def _pair_ids(store: FeedbackStore, through: int, prompts: Collection[str]) -> dict[str, set[str]]:
    """Ids of the usable pairs at `through`, by prompt hash."""
    if through <= 0 or not prompts:
        return {}
    drop_sample = _sample_is_dropped(store, through)
    found = {}
    for group in store.iter_prompt_groups(through, prompts=prompts):
        real = [item for item in group if item.event.source != SAMPLE_SOURCE] if drop_sample else group
        found[group[0].prompt_hash] = {pair.pair_id for pair in judge_prompt(real).pairs}
    return found


def _sample_is_dropped(store: FeedbackStore, through: int) -> bool:
    return store.holds_other_source(SAMPLE_SOURCE, through)
