"""The pair builder: votes, contradictions, cycles, decisions and edits."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvtrader_rl_dagster.feedback.cycles import components
from nvtrader_rl_dagster.feedback.events import StoredEvent, decision, preference, prompt_hash
from nvtrader_rl_dagster.feedback.pairs import Judgement, judge_prompt

HASH = prompt_hash([{"role": "user", "content": "q"}])


def stored(*events, undone=()):
    return [StoredEvent(seq, event, HASH, seq in undone) for seq, event in enumerate(events, 1)]


def texts(judgement: Judgement) -> set[tuple[str, str]]:
    return {(pair.chosen[0]["content"], pair.rejected[0]["content"]) for pair in judgement.pairs}


def says(chosen, rejected, reviewer=None, **more):
    return preference("q", chosen, rejected, reviewer=reviewer, **more)


def judged(response, verdict, reviewer=None, **more):
    return decision("q", response, verdict, reviewer=reviewer, **more)


def test_a_single_preference_is_a_pair_of_full_weight():
    judgement = judge_prompt(stored(says("a", "b")))
    (pair,) = judgement.pairs
    assert (pair.weight, pair.seqs, pair.prompt_hash, pair.origin) == (1.0, (1,), HASH, "preference")
    assert len(pair.pair_id) == 32 and judgement.fates == [(1, None)]


def test_two_reviewers_against_one_keep_their_side():
    judgement = judge_prompt(stored(says("b", "a", "cem"), says("a", "b", "ann"), says("a", "b", "bob")))
    assert texts(judgement) == {("a", "b")} and judgement.pairs[0].weight == pytest.approx(2 / 3)
    assert judgement.fates == [(1, "outvoted"), (2, None), (3, "merged_vote")]
    assert judgement.pairs[0].seqs == (2, 3)


def test_one_reviewer_counts_once_however_often_they_say_it():
    events = [says("a", "b", "ann", ts=f"2026-09-01T08:00:0{i}Z") for i in range(3)] + [says("b", "a", "bob")]
    judgement = judge_prompt(stored(*events))
    assert not judgement.pairs and {reason for _, reason in judgement.fates} == {"no_majority"}


def test_a_reviewer_on_both_sides_does_not_count_and_the_others_decide():
    judgement = judge_prompt(stored(says("a", "b", "ann"), says("b", "a", "ann"), says("b", "a", "bob")))
    assert texts(judgement) == {("b", "a")} and judgement.pairs[0].weight == 1.0
    assert judgement.fates == [(1, "contradiction"), (2, "contradiction"), (3, None)]


def test_most_votes_for_a_tie_make_a_tie():
    events = [says("a", "b", name, votes=(0, 0, 1)) for name in ("ann", "bob")] + [says("a", "b", "cem")]
    assert {reason for _, reason in judge_prompt(stored(*events)).fates} == {"tie"}


def test_panels_are_summed():
    judgement = judge_prompt(stored(says("a", "b", votes=(2, 1, 0)), says("b", "a", votes=(3, 0, 0))))
    assert texts(judgement) == {("b", "a")} and judgement.pairs[0].weight == pytest.approx(4 / 6)
    assert judgement.fates == [(1, "outvoted"), (2, None)]


def test_a_sum_of_split_panels_still_has_an_event_that_owns_the_pair():
    judgement = judge_prompt(stored(says("a", "b", votes=(3, 4, 0)), says("a", "b", votes=(3, 0, 4))))
    assert texts(judgement) == {("a", "b")} and judgement.fates == [(1, None), (2, "merged_vote")]


def test_a_cycle_is_dropped_and_what_hangs_on_it_is_kept():
    judgement = judge_prompt(stored(says("a", "b"), says("b", "c"), says("c", "a"), says("c", "d")))
    assert texts(judgement) == {("c", "d")}
    assert judgement.fates == [*((seq, "preference_cycle") for seq in (1, 2, 3)), (4, None)]


def test_an_undone_event_does_not_count():
    judgement = judge_prompt(stored(says("a", "b"), says("b", "a"), undone={2}))
    assert texts(judgement) == {("a", "b")} and judgement.fates == [(1, None), (2, "undone")]


def test_approved_and_rejected_answers_are_combined():
    judgement = judge_prompt(stored(judged("a", "approve"), judged("b", "reject"), judged("c", "reject")))
    assert texts(judgement) == {("a", "b"), ("a", "c")}
    assert {pair.origin for pair in judgement.pairs} == {"approve_reject"}
    assert [reason for _, reason in judgement.fates] == [None] * 3


def test_the_cap_uses_every_decision_before_one_is_used_again():
    events = [judged(f"good {i}", "approve") for i in range(6)] + [judged(f"bad {i}", "reject") for i in range(6)]
    judgement = judge_prompt(stored(*events), pair_cap=6)
    assert len(judgement.pairs) == 6 and all(reason is None for _, reason in judgement.fates)
    assert len(judge_prompt(stored(*events)).pairs) == 36


def test_decisions_beyond_the_cap_are_named_and_offered_unpaired():
    events = [judged("good", "approve")] + [judged(f"bad {i}", "reject") for i in range(5)]
    judgement = judge_prompt(stored(*events), pair_cap=3)
    reasons = [reason for _, reason in judgement.fates]
    assert reasons.count("prompt_cap") == 2 and reasons.count(None) == 4
    assert len(judgement.unpaired) == 2


def test_a_weight_from_decisions_is_the_weaker_of_both_shares():
    good = [judged("a", "approve", "ann"), judged("a", "approve", "bob"), judged("a", "reject", "cem")]
    judgement = judge_prompt(stored(*good, judged("b", "reject", "ann")))
    assert judgement.pairs[0].weight == pytest.approx(2 / 3)
    assert judgement.pairs[0].seqs == (1, 2, 4)


@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_an_edit_is_better_than_what_it_replaced(verdict):
    judgement = judge_prompt(stored(judged("draft", verdict, edit="final")))
    assert texts(judgement) == {("final", "draft")} and judgement.pairs[0].origin == "edit"
    assert judgement.fates == [(1, None)] and not judgement.unpaired


def test_an_edit_without_a_change_gives_no_pair():
    judgement = judge_prompt(stored(judged("draft", "reject", edit="draft")))
    assert not judgement.pairs and judgement.fates == [(1, "unpaired")]


def test_an_outvoted_edit_gives_no_pair():
    events = [judged("x", "reject", "ann", edit="y"), judged("x", "approve", "bob"), judged("x", "approve", "cem")]
    judgement = judge_prompt(stored(*events))
    assert not judgement.pairs and judgement.fates[0] == (1, "outvoted")


def test_edits_that_replace_each_other_are_a_cycle():
    judgement = judge_prompt(stored(judged("x", "reject", edit="y"), judged("y", "reject", edit="x")))
    assert not judgement.pairs and {reason for _, reason in judgement.fates} == {"preference_cycle"}


def test_decisions_that_repeat_an_explicit_preference_are_merged_with_it():
    judgement = judge_prompt(stored(says("a", "b"), judged("a", "approve"), judged("b", "reject")))
    (pair,) = judgement.pairs
    assert pair.origin == "preference" and pair.seqs == (1, 2, 3)
    assert [reason for _, reason in judgement.fates] == [None] * 3


def test_decisions_against_an_explicit_preference_do_not_override_it():
    judgement = judge_prompt(stored(says("b", "a"), judged("a", "approve"), judged("b", "reject")))
    assert texts(judgement) == {("b", "a")}
    assert judgement.fates == [(1, None), (2, "outvoted"), (3, "outvoted")]


def test_decisions_do_not_settle_what_explicit_votes_left_open():
    judgement = judge_prompt(stored(says("a", "b", votes=(0, 0, 1)), judged("a", "approve"), judged("b", "reject")))
    assert not judgement.pairs and {reason for _, reason in judgement.fates} == {"tie"}


ANSWERS = st.sampled_from("abcd")
REVIEWERS = st.sampled_from([None, "ann", "bob"])
PREFERENCES = st.builds(
    says,
    ANSWERS,
    ANSWERS.map(str.upper),
    REVIEWERS,
    votes=st.sampled_from([(1, 0, 0), (0, 0, 1), (2, 1, 0), (1, 2, 0), (1, 1, 1)]),
)
SAME_LETTERS = st.tuples(ANSWERS, ANSWERS, REVIEWERS).filter(lambda t: t[0] != t[1]).map(lambda t: says(*t))
DECISIONS = st.builds(
    judged,
    ANSWERS,
    st.sampled_from(["approve", "reject"]),
    REVIEWERS,
    edit=st.none() | ANSWERS,
)
EVENTS = st.lists(PREFERENCES | SAME_LETTERS | DECISIONS, max_size=14, unique_by=lambda event: event.event_id)


@settings(max_examples=300, deadline=None)
@given(EVENTS, st.randoms(use_true_random=False), st.sets(st.integers(1, 14), max_size=3), st.integers(1, 5))
def test_any_events_give_pairs_without_contradiction_or_cycle_in_any_order(events, shuffled, undone, cap):
    items = stored(*events, undone=undone)
    judgement = judge_prompt(items, pair_cap=cap)
    edges = texts(judgement)
    assert len(edges) == len(judgement.pairs) == len({pair.pair_id for pair in judgement.pairs})
    component = components((a.encode(), b.encode()) for a, b in edges)
    assert all(component[a.encode()] != component[b.encode()] for a, b in edges)
    assert sorted(seq for seq, _ in judgement.fates) == [item.seq for item in items]
    fates = dict(judgement.fates)
    used = {seq for seq, reason in judgement.fates if reason is None}
    for pair in judgement.pairs:
        assert 0 < pair.weight <= 1
        assert used & set(pair.seqs)
        assert {fates[seq] for seq in pair.seqs} <= {None, "merged_vote"}
    assert used <= {seq for pair in judgement.pairs for seq in pair.seqs}
    kinds = {item.seq: item.event.kind for item in items}
    explicit = [pair for pair in judgement.pairs if pair.origin == "preference"]
    assert len(explicit) == sum(kinds[seq] == "preference" for seq in used)
    # The same events in another order, with other numbers.
    again = list(items)
    shuffled.shuffle(again)
    renumbered = [item._replace(seq=seq) for seq, item in enumerate(again, 100)]
    other = judge_prompt(renumbered, pair_cap=cap)
    assert [(p.pair_id, p.weight, p.origin) for p in other.pairs] == [
        (p.pair_id, p.weight, p.origin) for p in judgement.pairs
    ]


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=25))
def test_components_agree_with_reachability(numbers):
    edges = [(bytes([a]), bytes([b])) for a, b in numbers]
    nodes = {node for edge in edges for node in edge}
    reach = {(n, n) for n in nodes} | set(edges)
    for middle, start, end in itertools.product(nodes, repeat=3):
        if (start, middle) in reach and (middle, end) in reach:
            reach.add((start, end))
    component = components(edges)
    for a, b in itertools.product(nodes, repeat=2):
        assert (component[a] == component[b]) == ((a, b) in reach and (b, a) in reach)


def test_a_long_chain_does_not_exhaust_the_stack():
    chain = [(f"{i}".encode(), f"{i + 1}".encode()) for i in range(20_000)]
    random.Random(0).shuffle(chain)
    assert len(set(components(chain).values())) == 20_001
