"""Imports as a whole: formats, mixed files, repetition, provenance and what the report adds up to."""

from __future__ import annotations

import json

import pytest
from feedback_rows import lines, pair_texts, rank_row, trl_row, turn

from nvtrader_rl_dagster.feedback.events import FeedbackEvent, decision, preference, undo
from nvtrader_rl_dagster.feedback.importers import FORMATS
from nvtrader_rl_dagster.feedback.importing import import_paths
from nvtrader_rl_dagster.feedback.pair_report import build_pairs, iter_pairs
from nvtrader_rl_dagster.feedback.reasons import REASONS
from nvtrader_rl_dagster.feedback.store import FeedbackStore

U, A = turn("user", "q"), turn("assistant", "x")


def gpt(text):
    return {"from": "gpt", "value": text}


def human(text):
    return {"from": "human", "value": text}


SHAPES = {
    "events": preference("q", "good", "bad").to_dict(),
    "nemo_rank": {
        "context": [U],
        "completions": [
            {"rank": 1, "completion": [turn("assistant", "bad")]},
            {"rank": 0, "completion": [turn("assistant", "good")]},
        ],
    },
    "helpsteer3": {"context": [U], "response1": "bad", "response2": "good", "overall_preference": 2},
    "trl": {"prompt": [U], "chosen": [turn("assistant", "good")], "rejected": [turn("assistant", "bad")]},
    "sharegpt": {"conversations": [human("q")], "chosen": gpt("good"), "rejected": gpt("bad")},
    "hh": {"chosen": "\n\nHuman: q\n\nAssistant: good", "rejected": "\n\nHuman: q\n\nAssistant: bad"},
    "pandalm": {"instruction": "q", "input": "", "response1": "good", "response2": "bad", "annotator1": 1, "idx": 0},
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("forced", [False, True])
def test_each_format_is_recognised_and_read(store, import_rows, name, forced):
    report = import_rows(SHAPES[name], format=name if forced else "auto")
    assert report.files[0].formats == {name: 1}
    assert pair_texts(store) == {("q", "good", "bad")}
    source = "PreferenceRecorded" if name == "events" else name
    assert [item.event.source for item in store.iter_events()] == [source]


def test_every_format_but_single_decisions_is_covered_above():
    assert set(FORMATS) - set(SHAPES) == {"kto"}


def test_an_unknown_format_is_refused_with_the_known_names(store, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"{}")
    with pytest.raises(ValueError, match="nemo_rank"):
        import_paths(store, [tmp_path / "a.jsonl"], format="nemo")


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "q", "chosen": [U, turn("assistant", "good")], "rejected": [U, turn("assistant", "bad")]},
        {"chosen": [U, turn("assistant", "good")], "rejected": [U, turn("assistant", "bad")]},
        {"chosen_messages": [U, turn("assistant", "good")], "rejected_messages": [U, turn("assistant", "bad")]},
        {"instruction": "q", "chosen": "good", "rejected": "bad"},
        {"question": "q", "chosen": "good", "rejected": "bad"},
        {"prompt": "q", "chosen": turn("assistant", "good"), "rejected": "bad"},
        {"messages": [U], "chosen": turn("assistant", "good"), "rejected": turn("assistant", "bad")},
        {"conversations": [turn("user", "q")], "chosen": "good", "rejected": "bad"},
    ],
)
def test_other_spellings_of_a_pair_are_read(store, import_rows, row):
    assert import_rows(row).usable_pairs == 1
    assert pair_texts(store) == {("q", "good", "bad")}


def test_instruction_rows_keep_input_and_history(store, import_rows):
    import_rows({"instruction": "sum", "input": "1 2", "history": [["a", "b"]], "chosen": "3", "rejected": "4"})
    assert next(iter_pairs(store)).prompt == [turn("user", "a"), turn("assistant", "b"), turn("user", "sum\n1 2")]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": "q", "chosen": [turn("user", "other"), A], "rejected": [U, A]}, "prompt_mismatch"),
        ({"chosen": [turn("user", "p"), A], "rejected": [U, A]}, "prompt_mismatch"),
        ({"chosen": [U, A], "rejected": [U, A]}, "identical"),
        ({"chosen": [A], "rejected": [turn("assistant", "y")]}, "no_prompt_boundary"),
        ({"prompt": None, "chosen": "a", "rejected": "b"}, "missing_context"),
        ({"prompt": 3, "chosen": "a", "rejected": "b"}, "not_text"),
        ({"prompt": "q", "chosen": "a"}, "not_text"),
        ({"conversations": [{"from": "narrator", "value": "q"}], "chosen": gpt("a"), "rejected": gpt("b")}, "bad_role"),
        ({"conversations": None, "chosen": gpt("a"), "rejected": gpt("b")}, "missing_context"),
        ({"messages": [U], "label": True}, "bad_role"),
        ({"prompt": "q", "completion": None, "label": True}, "not_text"),
        ({"kind": "decision", "event_id": "x", "prompt": "q", "response": "a", "verdict": "sure"}, "bad_event"),
        ({"something": 1}, "unknown_shape"),
        ([1], "unknown_shape"),
        ("text", "unknown_shape"),
        (None, "unknown_shape"),
    ],
)
def test_rows_that_cannot_be_read_are_refused_with_a_reason(import_rows, row, reason):
    report = import_rows(row)
    assert report.rows == 1 and report.set_aside == {reason: 1}
    assert reason in REASONS


def test_a_function_call_in_sharegpt_is_an_assistant_turn_that_calls_a_tool(store, import_rows):
    call = {"from": "function_call", "value": json.dumps({"name": "price", "arguments": {"t": "NVDA"}})}
    conversation = [human("q"), call, {"from": "observation", "value": "12"}]
    import_rows({"conversations": conversation, "chosen": gpt("a"), "rejected": gpt("b")})
    prompt = next(iter_pairs(store)).prompt
    assert [message["role"] for message in prompt] == ["user", "assistant", "tool"]
    assert prompt[1]["tool_calls"][0]["function"] == {"name": "price", "arguments": '{"t":"NVDA"}'}


def test_sharegpt_with_a_label_is_a_decision(store, import_rows):
    import_rows(
        {"conversations": [human("q"), gpt("x")], "label": True},
        {"conversations": [human("q"), gpt("y")], "label": False},
    )
    assert pair_texts(store) == {("q", "x", "y")}


def test_a_file_may_mix_formats_and_names_each(import_rows):
    report = import_rows(*SHAPES.values())
    assert report.files[0].formats == dict.fromkeys(SHAPES, 1)
    # All of them say the same about the same pair: one event each, counted by the id of the content.
    assert report.rows == 7 and report.usable_pairs == 1
    assert report.set_aside == {"duplicate": 6}


def test_importing_again_appends_nothing_and_reports_the_same(store, import_rows):
    rows = [trl_row(1), trl_row(1), trl_row(2), {"x": 1}, rank_row(3, 0, 0), decision("z", "r", "approve").to_dict()]
    first, second = import_rows(*rows), import_rows(*rows)
    assert first.events == 4 and second.events == 0 and second.already_stored == 4
    for name in ("rows", "usable_pairs", "set_aside", "decisions_used"):
        assert getattr(first, name) == getattr(second, name)
    assert build_pairs(store).decisions == 6


def test_a_repeated_row_is_recorded_with_its_place(store, import_rows):
    import_rows(trl_row(1), trl_row(2), trl_row(1))
    assert [(row["reason"], row["line"]) for row in store.iter_set_aside()] == [("duplicate", 3)]


def test_an_id_that_stands_for_other_content_is_refused_not_swallowed(store, import_rows):
    one = preference("q1", "a", "b", event_id="1").to_dict()
    other = preference("q2", "a", "b", event_id="1").to_dict()
    assert import_rows(one).usable_pairs == 1
    report = import_rows(one, other)
    assert report.usable_pairs == 1 and report.set_aside == {"bad_event": 1}
    assert report.first_problems[0]["field"] == "event_id"


def test_a_second_file_that_agrees_is_merged_into_the_pair_that_is_kept(import_rows, store):
    import_rows(preference("q", "a", "b", reviewer="ann").to_dict())
    report = import_rows(preference("q", "a", "b", reviewer="bob").to_dict())
    assert report.events == 1 and report.usable_pairs == 0 and report.set_aside == {"merged_vote": 1}
    assert next(iter_pairs(store)).weight == 1.0


def test_an_import_reports_its_own_rows_only(import_rows):
    import_rows(trl_row(1), trl_row(2))
    report = import_rows(trl_row(3), {"x": 1})
    assert report.rows == 2 and report.usable_pairs == 1 and report.set_aside == {"unknown_shape": 1}


def test_more_prompts_than_are_judged_by_name_give_the_same_report(import_rows, monkeypatch):
    rows = [trl_row(i) for i in range(30)] + [trl_row(1, "bad", "good"), {"x": 1}]
    monkeypatch.setattr("nvtrader_rl_dagster.feedback.importing._PROMPTS_BY_NAME", 5)
    report = import_rows(*rows)
    assert report.usable_pairs == 29 and report.set_aside == {"contradiction": 2, "unknown_shape": 1}


def test_an_undo_is_counted_and_takes_its_target_back(store, import_rows):
    event = decision("q", "a", "approve", event_id="e1")
    report = import_rows(event.to_dict(), undo("e1").to_dict(), decision("q", "b", "reject").to_dict())
    assert report.rows == 3 and report.usable_pairs == 0
    assert report.set_aside == {"undone": 1, "undo_event": 1, "unpaired": 1}


def test_events_carry_file_and_line_and_exported_events_keep_what_they_have(store, import_bytes, tmp_path):
    import_bytes(b"\n" + lines(trl_row(1)), "first.jsonl")
    (event,) = [item.event for item in store.iter_events()]
    assert event.metadata == {"file": "first.jsonl", "line": 2}
    second = FeedbackStore(f"sqlite:///{tmp_path / 'second.db'}")
    (tmp_path / "export.jsonl").write_bytes(lines(event.to_dict()))
    import_paths(second, [tmp_path / "export.jsonl"])
    assert [item.event for item in second.iter_events()] == [event]


def test_a_given_source_is_written_into_every_event(store, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines(trl_row(1), preference("q", "a", "b", source="own").to_dict()))
    import_paths(store, [tmp_path], source="desk")
    assert {item.event.source for item in store.iter_events()} == {"desk"}


def test_sample_events_are_set_aside_once_there_is_other_feedback(store, tmp_path, import_rows):
    (tmp_path / "sample.jsonl").write_bytes(lines(trl_row(1), trl_row(2)))
    assert import_paths(store, [tmp_path / "sample.jsonl"], source="sample").usable_pairs == 2
    through = store.last_seq()
    assert import_rows(trl_row(1, "other", "side")).usable_pairs == 1
    assert pair_texts(store) == {("q1", "other", "side")}
    assert build_pairs(store).set_aside == {"sample_data": 2}
    assert build_pairs(store, through).usable_pairs == 2


def test_the_pair_report_adds_up_and_measures_length(store, import_rows):
    import_rows(
        trl_row(1, "long answer", "short"), trl_row(2, "abc", "abcdef"),
        trl_row(3, "same", "size"), trl_row(4, "x", "x"),
        {"kind": "decision", **decision("z", "r", "approve").to_dict()},
    )  # fmt: skip
    seen = []
    report = build_pairs(store, on_prompt=lambda group, judgement: seen.extend(judgement.pairs))
    assert report.decisions == 5 == report.used + sum(report.set_aside.values())
    assert report.set_aside == {"identical": 1, "unpaired": 1}
    assert report.usable_pairs == len(seen) == report.prompts == 3
    assert report.length_bias["longer_chosen"] == pytest.approx(1 / 3)
    assert report.length_bias["longer_wins_accuracy"] == pytest.approx(0.5)
    assert report.length_bias["mean_chosen_chars"] == pytest.approx((11 + 3 + 4) / 3)
    assert report.by_source == {"trl": 3} and report.by_origin == {"preference": 3}
    assert json.loads(json.dumps(report.to_dict()))["through_seq"] == store.last_seq()


def test_a_report_is_plain_json(import_rows):
    report = import_rows(trl_row(1), {"x": 1}).to_dict()
    assert json.loads(json.dumps(report)) == report
    assert FeedbackEvent.from_dict(preference("q", "a", "b").to_dict()).kind == "preference"
