"""When a training starts: bases, counts and the decision, without a store and without Dagster."""

from __future__ import annotations

import pytest

from nvtrader_rl_dagster.feedback.trigger import (
    Cursor,
    Decision,
    Outcome,
    Request,
    Standing,
    Window,
    decide,
    newest,
)

LEDGER = "0b6f6e1e-6f0a-4c5e-9f57-1d0a4c8f2f11"
NOTHING = Standing()
FAILED = Request(60, Outcome.FAILED, "disk_full: no space")


def cursor(**fields: int) -> Cursor:
    return Cursor(LEDGER, **fields)


def decision(at: Cursor, standing: Standing = NOTHING, last: int | None = None) -> Decision:
    return decide(at, standing, at.seq if last is None else last, threshold=50, retry_pairs=10)


def test_a_window_is_known_by_its_key():
    window = Window(LEDGER, 1234)
    assert window.key == f"{LEDGER}:1234" and Window.parse(window.key) == window


@pytest.mark.parametrize("text", [None, "", "x", ":5", "x:", "x:-5", "x:5a"])
def test_any_other_text_is_no_window(text):
    assert Window.parse(text) is None


def test_the_cursor_comes_back_from_its_text_and_is_short():
    full = cursor(base=10**9, seq=10**9, pending=10**9, fired=10**9, newer=10**9)
    assert Cursor.load(full.dump(), LEDGER) == full
    assert len(full.dump()) < 300


@pytest.mark.parametrize(
    "text", [None, "", "not json", "[]", '{"v": 0}', Cursor("another store", base=9, seq=9).dump()]
)
def test_a_cursor_that_is_lost_or_of_another_store_starts_afresh(text):
    assert Cursor.load(text, LEDGER) == cursor()


def test_the_request_that_reaches_furthest_counts():
    assert newest(Request(5, Outcome.OPEN), None, FAILED) == FAILED
    assert newest() == Request(0, Outcome.SPENT)


def test_sources_that_disagree_about_a_window_are_weighed():
    spent, cancelled, opened = (Request(60, outcome) for outcome in (Outcome.SPENT, Outcome.CANCELLED, Outcome.OPEN))
    assert newest(spent, FAILED) == FAILED
    assert newest(FAILED, cancelled) == cancelled  # somebody stopped it on purpose
    assert newest(cancelled, FAILED, opened) == opened  # it is tried again right now


def test_a_trained_window_is_the_new_base_and_what_is_newer_is_pending():
    open_window = cursor(base=10, seq=75, pending=65, fired=60, newer=15)
    trained = Standing(60, Request(60, Outcome.SPENT))
    assert open_window.settled(trained) == cursor(base=60, seq=75, pending=15, fired=60, newer=15)


def test_a_cancelled_window_is_the_new_base_too():
    cancelled = Standing(10, Request(60, Outcome.CANCELLED))
    settled = cursor(base=10, seq=75, pending=65, fired=60, newer=15).settled(cancelled)
    assert (settled.base, settled.pending) == (60, 15)


def test_a_failed_or_open_window_counts_on_from_the_base_before_it():
    at = cursor(base=10, seq=75, pending=65, fired=60, newer=15)
    for outcome in (Outcome.FAILED, Outcome.OPEN):
        assert at.settled(Standing(10, Request(60, outcome))) == at


def test_a_fired_window_of_which_no_trace_is_left_is_not_fired_again():
    settled = cursor(base=10, seq=60, pending=55, fired=60).settled(Standing(10))
    assert settled == cursor(base=60, seq=60, fired=60)


def test_a_lost_cursor_starts_at_what_was_trained():
    assert cursor().settled(Standing(900, Request(900))) == cursor(base=900, seq=900, fired=900)


def test_a_lost_cursor_knows_the_open_window_from_the_runs():
    open_window = Standing(900, Request(950, Outcome.OPEN))
    assert cursor().settled(open_window) == cursor(base=900, seq=900, fired=950)


def test_a_training_that_somebody_else_started_keeps_the_count():
    by_hand = Standing(10, Request(80, Outcome.OPEN))
    at = cursor(base=10, seq=75, pending=33, fired=10, newer=33)
    assert at.settled(by_hand) == cursor(base=10, seq=75, pending=33, fired=80, newer=0)


def test_a_training_of_less_than_was_counted_starts_the_count_again():
    by_hand = Standing(10, Request(40, Outcome.OPEN))
    assert cursor(base=10, seq=75, pending=33, fired=10, newer=33).settled(by_hand) == cursor(base=10, seq=10, fired=40)


def test_the_threshold_fires():
    assert not decision(cursor(seq=49, pending=49)).fire
    assert decision(cursor(seq=50, pending=50)).fire


def test_nothing_fires_while_a_training_is_in_flight():
    busy = Standing(10, Request(60, Outcome.OPEN), "run ab12cd34")
    at = cursor(base=10, seq=97, pending=87, fired=60, newer=37)
    assert decision(at, busy) == Decision(False, "37 of 50 usable pairs; run ab12cd34 in progress")


def test_nothing_fires_while_its_own_window_is_open_even_if_no_run_was_seen():
    assert not decision(cursor(seq=99, pending=99, fired=60, newer=60), Standing(0, Request(60, Outcome.OPEN))).fire


def test_a_failed_window_needs_newer_pairs_than_its_own():
    failed = Standing(0, FAILED)
    early = decision(cursor(seq=69, pending=69, fired=60, newer=9), failed)
    assert early == Decision(
        False, "69 of 50 usable pairs; 9 of 10 newer than the window that failed (disk_full: no space)"
    )
    assert decision(cursor(seq=70, pending=70, fired=60, newer=10), failed).fire


def test_a_failed_window_whose_pairs_were_undone_needs_the_threshold_again():
    assert not decision(cursor(seq=80, pending=30, fired=60, newer=12), Standing(0, FAILED)).fire


def test_what_is_not_counted_yet_does_not_fire():
    behind = decision(cursor(seq=20_000, pending=20_000), last=1_000_000)
    assert behind == Decision(False, "20000 of 50 usable pairs; counted up to event 20000 of 1000000")


def test_an_older_copy_of_the_store_is_named():
    said = decision(cursor(base=90, seq=90, fired=90), last=40)
    assert not said.fire and "the store ends at 40" in said.reason


def test_after_firing_the_counts_of_the_window_stay_and_the_newer_ones_start_at_zero():
    assert cursor(base=10, seq=75, pending=65, fired=10, newer=65).requested() == cursor(
        base=10, seq=75, pending=65, fired=75, newer=0
    )
