"""Events: what is accepted, how they are identified, and their row form."""

from __future__ import annotations

import pytest
from feedback_rows import WILD, turn
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_rl_dagster.feedback.events import FeedbackEvent, decision, preference, prompt_hash, undo
from nvtrader_rl_dagster.feedback.reasons import REASONS, RowRejected

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
NAME = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=50)
METADATA = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(-5, 5) | st.booleans())


@given(TEXT, TEXT, TEXT, NAME, NAME, METADATA, st.tuples(*[st.integers(0, 9)] * 3).filter(any))
def test_the_row_form_of_a_preference_gives_an_equal_event(prompt, chosen, rejected, reviewer, agent, metadata, votes):
    if chosen == rejected:
        return
    event = preference(prompt, chosen, rejected, votes=votes, reviewer=reviewer, agent=agent, metadata=metadata)
    assert FeedbackEvent.from_dict(event.to_dict()) == event


@given(TEXT, TEXT, st.none() | TEXT, st.sampled_from(["approve", "reject"]))
def test_the_row_form_of_a_decision_and_its_undo_give_equal_events(prompt, response, edit, verdict):
    event = decision(prompt, response, verdict, edit=edit)
    assert FeedbackEvent.from_dict(event.to_dict()) == event
    back = undo(event.event_id, reviewer="ann")
    assert FeedbackEvent.from_dict(back.to_dict()) == back


def test_the_same_content_has_the_same_id_whatever_source_and_metadata_are():
    one = preference("q", "a", "b", source="x", metadata={"line": 1})
    assert one.event_id == preference("q", "a", "b", source="y").event_id
    assert one.event_id == preference([turn("user", "q")], [turn("assistant", "a")], "b").event_id


def test_each_content_field_changes_the_id():
    events = [
        preference("q", "a", "b"),
        preference("q", "b", "a"),
        preference("q", "a", "b", votes=(0, 0, 1)),
        preference("q", "a", "b", reviewer="ann"),
        preference("q", "a", "b", agent="ann"),
        preference("q", "a", "b", ts="2026-09-01T08:00:00Z"),
        decision("q", "a", "approve"),
        decision("q", "a", "reject"),
        decision("q", "a", "reject", edit="b"),
        undo("q"),
    ]
    assert len({event.event_id for event in events}) == len(events)


def test_times_are_kept_in_utc():
    assert preference("q", "a", "b", ts="2026-09-01T10:00:00+02:00").ts == "2026-09-01T08:00:00Z"
    assert preference("q", "a", "b", ts="2026-09-01T08:00:00.250").ts == "2026-09-01T08:00:00.250000Z"


def test_text_is_not_changed():
    event = decision(WILD, "x" + WILD, "reject", edit=WILD)
    assert (event.prompt[0]["content"], event.edit[0]["content"]) == (WILD, WILD)


def test_the_prompt_hash_depends_on_content_and_not_on_key_order():
    assert prompt_hash([{"role": "user", "content": "q"}]) == prompt_hash([{"content": "q", "role": "user"}])
    assert prompt_hash([turn("user", "q")]) != prompt_hash([turn("system", "q")])


@pytest.mark.parametrize(
    ("make", "reason", "field"),
    [
        (lambda: preference("q", "a", "a"), "identical", "rejected"),
        (lambda: preference("q", " ", "a"), "empty_chosen", "chosen"),
        (lambda: preference("q", "a", []), "empty_rejected", "rejected"),
        (lambda: preference(" ", "a", "b"), "empty_prompt", "prompt"),
        (lambda: preference([], "a", "b"), "empty_prompt", "prompt"),
        (lambda: preference("q", None, "b"), "not_text", "chosen"),
        (lambda: preference([turn("pm", "q")], "a", "b"), "bad_role", "prompt[0].role"),
        (lambda: preference("q", [turn("assistant", "a"), turn("user", "b")], "b"), "bad_role", "chosen[1].role"),
        (lambda: preference("q", "a", "b", votes=(0, 0, 0)), "bad_event", "votes"),
        (lambda: preference("q", "a", "b", votes=(True, 0, 0)), "bad_event", "votes"),
        (lambda: preference("q", "a", "b", ts="yesterday"), "bad_event", "ts"),
        (lambda: preference("q", "a", "b", ts="2026-13-01T00:00:00Z"), "bad_event", "ts"),
        (lambda: preference("q", "a", "b", reviewer=""), "bad_event", "reviewer"),
        (lambda: preference("q", "a", "b", event_id="x" * 301), "bad_event", "event_id"),
        (lambda: preference("q", "a", "b", metadata={"x": float("nan")}), "bad_event", "metadata"),
        (lambda: preference("q", "a\ud83d", "b"), "lone_surrogate", None),
        (lambda: preference("q", "a", "b", reviewer="\udcff"), "lone_surrogate", "reviewer"),
        (lambda: decision("q", "", "approve"), "empty_response", "response"),
        (lambda: decision("q", "a", "maybe"), "bad_event", "verdict"),
        (lambda: FeedbackEvent.from_dict({"kind": "vote"}), "bad_event", "kind"),
        (lambda: FeedbackEvent.from_dict({"kind": ["undo"]}), "bad_event", "kind"),
        (lambda: FeedbackEvent.from_dict({"kind": "undo"}), "bad_event", "target"),
        (
            lambda: FeedbackEvent.from_dict({"kind": "undo", "target": "x", "verdict": "approve"}),
            "bad_event",
            "verdict",
        ),
        (
            lambda: FeedbackEvent.from_dict({"kind": "decision", "response": "a", "verdict": "x"}),
            "missing_context",
            "prompt",
        ),
    ],
)
def test_invalid_events_are_refused_with_reason_and_field(make, reason, field):
    with pytest.raises(RowRejected) as caught:
        make()
    assert (caught.value.reason, caught.value.field) == (reason, field)
    assert REASONS[reason].remedy in str(caught.value)


def test_an_empty_edit_is_no_edit():
    assert decision("q", "a", "reject", edit="  ").edit is None
