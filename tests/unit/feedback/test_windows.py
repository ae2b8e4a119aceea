"""Counting what is new: any split into ticks gives what a full recount gives, and a store is opened without a write."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvtrader_rl_dagster.feedback.events import FeedbackEvent, decision, preference, undo
from nvtrader_rl_dagster.feedback.pair_report import SAMPLE_SOURCE, iter_pairs
from nvtrader_rl_dagster.feedback.store import FeedbackStore
from nvtrader_rl_dagster.feedback.trigger import Cursor
from nvtrader_rl_dagster.feedback.windows import Count, advance, counted

PROMPTS, ANSWERS, REVIEWERS = ["p", "q", "r"], ["a", "b", "c"], [None, "ann"]


@contextmanager
def new_store() -> Iterator[FeedbackStore]:
    with tempfile.TemporaryDirectory() as folder:
        opened = FeedbackStore(f"sqlite:///{folder}/feedback.db")
        yield opened
        opened.close()


def recount(store: FeedbackStore, base: int, through: int) -> int:
    def ids(seq: int) -> set[str]:
        return {pair.pair_id for pair in iter_pairs(store, seq)} if seq else set()

    return len(ids(through) - ids(base))


def pair(n: int, **more: str) -> FeedbackEvent:
    return preference(f"prompt {n}", "good", "bad", event_id=f"pair-{n}", **more)


voices = {"source": st.sampled_from(["PreferenceRecorded", SAMPLE_SOURCE]), "reviewer": st.sampled_from(REVIEWERS)}
sides = st.permutations(ANSWERS).map(lambda order: order[:2])
prompts = st.sampled_from(PROMPTS)
preferences = st.fixed_dictionaries({"kind": st.just("preference"), "prompt": prompts, "sides": sides, **voices})
decisions = st.fixed_dictionaries(
    {
        "kind": st.just("decision"),
        "prompt": prompts,
        "response": st.sampled_from(ANSWERS),
        "verdict": st.sampled_from(["approve", "reject"]),
        "edit": st.sampled_from([None, None, *ANSWERS]),
        **voices,
    }
)
# The target may be stored later, or never.
undos = st.fixed_dictionaries({"kind": st.just("undo"), "target": st.integers(0, 16), **voices})
makers = st.one_of(preferences, preferences, decisions, undos, undos)


def made(number: int, row: dict) -> FeedbackEvent:
    fields = dict(row)
    kind = fields.pop("kind")
    if kind == "undo":
        return undo(f"e{fields.pop('target')}", event_id=f"e{number}", **fields)
    if kind == "decision":
        return decision(
            fields.pop("prompt"), fields.pop("response"), fields.pop("verdict"), event_id=f"e{number}", **fields
        )
    chosen, rejected = fields.pop("sides")
    return preference(fields.pop("prompt"), chosen, rejected, event_id=f"e{number}", **fields)


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(makers, min_size=4, max_size=16), data=st.data())
def test_any_split_into_ticks_counts_what_a_full_recount_counts(rows, data):
    length = len(rows)
    for row in rows[: data.draw(st.integers(0, length), label="sample only")]:
        row["source"] = SAMPLE_SOURCE
    base = data.draw(st.integers(0, length), label="base")
    fired = data.draw(st.integers(base, length), label="fired")
    ticks = data.draw(st.sets(st.integers(base, length)), label="ticks") | {length}
    with new_store() as store:
        store.append([made(n, row) for n, row in enumerate(rows[:base])])
        cursor = Cursor(store.ledger_id, base=base, seq=base, fired=fired)
        for through in sorted(ticks):
            # Only what a tick could see is stored when it counts.
            store.append([made(n, row) for n, row in enumerate(rows[:through]) if n >= store.last_seq()])
            cursor = counted(store, cursor, through)
            assert (cursor.seq, cursor.pending) == (through, recount(store, base, through))
            assert cursor.newer == (recount(store, fired, through) if through > fired else 0)


def test_a_pair_that_is_undone_does_not_count_any_more(store):
    store.append([pair(n) for n in range(5)])
    count = advance(store, Count(0, 0, 0), 5)
    store.append([undo("pair-1"), undo("pair-3")])
    assert count.pairs == 5 and advance(store, count, 7) == Count(0, 7, 3)


def test_a_pair_that_was_there_at_the_base_is_not_new_when_it_comes_back_in_other_words(store):
    store.append([pair(0), undo("pair-0"), preference("prompt 0", "good", "bad", event_id="again")])
    assert advance(store, Count(1, 1, 0), 3).pairs == 0
    assert advance(store, Count(2, 2, 0), 3).pairs == 1


def test_the_first_feedback_of_ones_own_sets_the_sample_aside_on_prompts_it_does_not_touch(store):
    store.append([pair(n, source=SAMPLE_SOURCE) for n in range(40)])
    count = advance(store, Count(0, 0, 0), 40)
    store.append([pair(100)])
    assert count.pairs == 40 and advance(store, count, 41).pairs == 1


def test_an_undo_of_an_event_that_never_came_sets_the_sample_aside_too(store):
    store.append([pair(n, source=SAMPLE_SOURCE) for n in range(4)])
    count = advance(store, Count(0, 0, 0), 4)
    store.append([undo("of nothing")])
    assert advance(store, count, 5).pairs == recount(store, 0, 5) == 0


def test_the_prompts_of_a_tick_are_those_of_its_events_and_of_what_they_take_back(store):
    store.append([pair(0), pair(1), pair(2), undo("pair-0"), undo("pair-9"), pair(9)])
    prompts = [item.prompt_hash for item in store.iter_events() if item.event.kind != "undo"]
    assert store.touched_prompts(2, 5) == {prompts[2], prompts[0]}
    assert store.touched_prompts(5, 6) == {prompts[3]}
    assert store.touched_prompts(6, 6) == set()


def test_an_older_copy_of_the_store_is_counted_again(store):
    store.append([pair(n) for n in range(6)])
    ahead = Cursor(store.ledger_id, base=2, seq=90, pending=70, fired=2, newer=70)
    assert counted(store, ahead, 6) == Cursor(store.ledger_id, base=2, seq=6, pending=4, fired=2, newer=4)


def test_asking_for_a_store_that_is_not_there_makes_no_file(tmp_path: Path):
    assert FeedbackStore.existing(f"sqlite:///{tmp_path / 'folder' / 'feedback.db'}") is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_tables_is_no_store_yet(tmp_path: Path):
    (tmp_path / "feedback.db").touch()
    assert FeedbackStore.existing(f"sqlite:///{tmp_path / 'feedback.db'}") is None


def test_an_existing_store_is_opened_and_counted_while_another_process_writes(store):
    store.append([pair(0)])
    writer = sqlite3.connect(store.url.database, timeout=0, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    opened = FeedbackStore.existing(store.url)
    assert opened is not None and opened.ledger_id == store.ledger_id
    assert advance(opened, Count(0, 0, 0), opened.last_seq()).pairs == 1
    opened.close()
    writer.close()


def test_a_store_in_memory_is_refused():
    with pytest.raises(ValueError, match="needs a file"):
        FeedbackStore.existing("sqlite://")
