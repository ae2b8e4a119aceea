"""The store: append-only, idempotent, ordered, and safe with many writers."""

from __future__ import annotations

import multiprocessing
import sqlite3
from pathlib import Path

import pytest
from feedback_rows import WILD

from nvtrader_rl_dagster.feedback.events import decision, preference, undo
from nvtrader_rl_dagster.feedback.store import FeedbackStore, SetAsideRow

WRITERS, EACH, SHARED = 4, 500, 100


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'feedback.db'}"


def test_appending_again_changes_nothing_and_counts_only_what_is_new(store):
    events = [preference(f"q{i}", "a", "b") for i in range(5)]
    assert store.append(events[:3]) == 3
    assert store.append(events) == 2
    assert [item.event for item in store.iter_events()] == events
    assert store.counts()["events"] == 5


def test_an_event_comes_back_as_it_was_given(store):
    events = [
        preference(
            WILD, "a" + WILD, "b", votes=(2, 1, 0), reviewer=WILD.replace("\x00", ""), metadata={"x": [1.5, None]}
        ),
        decision("q", "r", "reject", edit="e", agent="pm", ts="2026-09-01T08:00:00Z", event_id="own"),
        undo("own"),
    ]
    store.append(events)
    assert [item.event for item in store.iter_events()] == events
    assert store.events_of(["own", "unknown"]) == {"own": events[1]}


def test_events_are_read_by_range_of_seq(store):
    store.append(preference(f"q{i}", "a", "b") for i in range(6))
    seqs = [item.seq for item in store.iter_events()]
    assert seqs == sorted(seqs) and store.last_seq() == seqs[-1]
    assert [item.seq for item in store.iter_events(seqs[1], seqs[3])] == seqs[2:4]


def test_a_batch_names_the_seq_of_new_and_known_events(store):
    events = [preference(f"q{i}", "a", "b") for i in range(4)]
    first = store.append_batch(events[1:3])
    both = store.append_batch(events)
    known = {item.event.event_id: item.seq for item in store.iter_events()}
    assert (first.new, both.new) == (2, 2)
    assert first.seqs == [known[event.event_id] for event in events[1:3]]
    assert both.seqs == [known[event.event_id] for event in events]


def test_groups_hold_all_events_of_a_prompt_in_order_and_no_undo(store):
    store.append(preference(f"q{i % 3}", "a", f"b{i}") for i in range(9))
    store.append([undo("x")])
    groups = list(store.iter_prompt_groups())
    assert [len(group) for group in groups] == [3, 3, 3]
    for group in groups:
        assert len({item.prompt_hash for item in group}) == 1
        assert [item.seq for item in group] == sorted(item.seq for item in group)
    wanted = groups[1][0].prompt_hash
    assert list(store.iter_prompt_groups(prompts={wanted})) == [groups[1]]


def test_an_undo_marks_its_target_from_its_own_seq_on(store):
    event = decision("q", "r", "approve")
    store.append([event])
    before = store.last_seq()
    store.append([undo(event.event_id)])
    assert [item.undone for item in store.iter_events()] == [True, False]
    assert [item.undone for group in store.iter_prompt_groups(before) for item in group] == [False]
    assert [item.event.target for item in store.iter_undos()] == [event.event_id]


def test_a_refused_row_is_recorded_once_with_text_that_any_database_takes(store):
    row = SetAsideRow("f.jsonl", 3, "chosen", "bad_utf8", "at byte 1", "x\x00y\udcff" + "z" * 70_000)
    assert store.append_set_aside([row, row]) == 1
    assert store.append_set_aside([row]) == 0
    (stored,) = store.iter_set_aside()
    assert stored["raw"].startswith("x\\x00y\\udcffz") and len(stored["raw"]) < 70_000
    assert (stored["file"], stored["line"], stored["field"], stored["reason"]) == ("f.jsonl", 3, "chosen", "bad_utf8")


def test_the_ledger_id_is_made_once(tmp_path):
    assert FeedbackStore(url_of(tmp_path)).ledger_id == FeedbackStore(url_of(tmp_path)).ledger_id


def test_the_database_is_in_wal_mode(tmp_path):
    FeedbackStore(url_of(tmp_path)).close()
    with sqlite3.connect(tmp_path / "feedback.db") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite://", "sqlite:///:memory:"])
def test_other_databases_are_refused(url):
    with pytest.raises(ValueError, match="sqlite"):
        FeedbackStore(url)


def _write(url: str, writer: int, barrier) -> None:
    barrier.wait()
    store = FeedbackStore(url)
    shared = [preference(f"shared {i}", "a", "b") for i in range(SHARED)]
    own = [preference(f"own {writer} {i}", "a", "b") for i in range(EACH - SHARED)]
    for start in range(0, EACH, 10):
        store.append((shared + own)[start : start + 10])


def test_many_processes_write_at_once_and_nothing_is_lost_or_doubled(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(WRITERS)
    writers = [context.Process(target=_write, args=(url_of(tmp_path), n, barrier)) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    store = FeedbackStore(url_of(tmp_path))
    items = list(store.iter_events())
    assert len(items) == SHARED + WRITERS * (EACH - SHARED)
    assert len({item.event.event_id for item in items}) == len(items)
    seqs = [item.seq for item in items]
    assert seqs == sorted(set(seqs)) and store.last_seq() == seqs[-1]
