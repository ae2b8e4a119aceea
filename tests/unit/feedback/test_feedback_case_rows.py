"""Cases O12 to O30: rows and shapes."""

from __future__ import annotations

import pytest
from feedback_rows import WILD, lines, pair_texts, rank_row, trl_row, turn

from nvtrader_rl_dagster.feedback.events import FeedbackEvent, decision, preference
from nvtrader_rl_dagster.feedback.pair_report import build_pairs, iter_pairs


def helpsteer_row(strength, **extra):
    return {
        "context": [turn("user", f"q{strength}")],
        "response1": "one",
        "response2": "two",
        "overall_preference": strength,
        **extra,
    }


def test_o12_a_task_name_is_accepted_and_never_comes_out(store, import_rows):
    assert import_rows(rank_row(1, task_name="x")).usable_pairs == 1
    assert all("task_name" not in item.event.to_dict() for item in store.iter_events())


def test_o13_equal_ranks_are_a_tie(store, import_rows):
    report = import_rows(rank_row(1, 0, 0), rank_row(2))
    assert report.usable_pairs == 1 and report.set_aside == {"tie": 1}
    assert pair_texts(store) == {("q2", "a", "b")}


def test_o14_the_sign_of_overall_preference_names_the_better_response(store, import_rows):
    report = import_rows(*[helpsteer_row(strength) for strength in range(-3, 4)])
    assert report.usable_pairs == 6 and report.set_aside == {"tie": 1}
    better_one = {(f"q{s}", "one", "two") for s in (-3, -2, -1)}
    better_two = {(f"q{s}", "two", "one") for s in (1, 2, 3)}
    assert pair_texts(store) == better_one | better_two


@pytest.mark.parametrize("strength", [4, -4, 0.5, 1.0, "1", True, None, [1], {}])
def test_o14_other_values_of_overall_preference_are_refused(import_rows, strength):
    report = import_rows(helpsteer_row(strength))
    assert report.set_aside == {"bad_preference": 1}
    assert report.first_problems[0]["field"] == "overall_preference"


def test_o15_a_missing_or_null_context_is_refused(store, import_rows):
    missing = rank_row(2)
    del missing["context"]
    report = import_rows(rank_row(1), missing, {**rank_row(3), "context": None})
    assert report.set_aside == {"missing_context": 2}
    assert pair_texts(store) == {("q1", "a", "b")}


def test_o16_a_context_that_is_a_text_is_one_user_turn(store, import_rows):
    report = import_rows(rank_row(1), {**rank_row(2), "context": "hello"})
    assert report.usable_pairs == 2
    assert [turn("user", "hello")] in [pair.prompt for pair in iter_pairs(store)]


def test_o17_ranks_as_digits_are_read_as_numbers(store, import_rows):
    assert import_rows(rank_row(1), rank_row(2, "1", "0"), rank_row(3, "9", "10")).usable_pairs == 3
    assert pair_texts(store) == {("q1", "a", "b"), ("q2", "b", "a"), ("q3", "a", "b")}


@pytest.mark.parametrize("rank", [True, None, 0.5, "best", "", [0], "1.0", "٣"])
def test_o17_ranks_that_are_no_whole_numbers_are_refused(import_rows, rank):
    assert import_rows(rank_row(1, rank, 1)).set_aside == {"bad_rank": 1}


@pytest.mark.parametrize("key", ["text", "value"])
def test_o18_text_parts_are_joined(store, import_rows, key):
    parts = [{"type": "text", key: "z"}, {"type": "text", key: "y"}]
    row = trl_row(1, chosen=[turn("assistant", parts)])
    assert import_rows(row).usable_pairs == 1
    assert pair_texts(store) == {("q1", "zy", "bad")}


def test_o18_an_image_part_is_refused(import_rows):
    parts = [{"type": "text", "text": "z"}, {"type": "image_url", "image_url": {"url": "x"}}]
    report = import_rows(trl_row(1, chosen=[turn("assistant", parts)]), trl_row(2, images=["x.png"]))
    assert report.set_aside == {"unsupported_modality": 2}
    assert report.first_problems[0]["field"] == "chosen[0].content[1]"


def tool_row(number, arguments):
    call = {"id": "c1", "type": "function", "function": {"name": "price", "arguments": arguments}}
    context = [
        turn("user", f"q{number}"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "12", "tool_call_id": "c1"},
    ]
    return {**rank_row(number), "context": context}


def test_o19_tool_calls_keep_their_arguments_as_text_and_add_no_keys_to_other_turns(store, import_rows):
    assert import_rows(rank_row(1), tool_row(2, {"t": "x"})).usable_pairs == 2
    prompts = {pair.prompt[0]["content"]: pair.prompt for pair in iter_pairs(store)}
    assert prompts["q1"] == [turn("user", "q1")]
    asked, calling, answered = prompts["q2"]
    assert asked == turn("user", "q2")
    assert calling["content"] == "" and calling["tool_calls"][0]["function"]["arguments"] == '{"t":"x"}'
    assert answered == {"role": "tool", "content": "12", "tool_call_id": "c1"}


def test_o19_tool_calls_are_refused_when_asked(import_rows):
    report = import_rows(rank_row(1), tool_row(2, "{}"), tool_calls="refuse")
    assert report.usable_pairs == 1 and report.set_aside == {"tool_calls_unsupported": 1}


@pytest.mark.parametrize("calls", ["x", [1], [{"function": None}], [{"function": {"name": 3}}]])
def test_o19_malformed_tool_calls_are_refused(import_rows, calls):
    row = {**rank_row(1), "context": [turn("user", "q"), {"role": "assistant", "content": "", "tool_calls": calls}]}
    assert import_rows(row).set_aside == {"tool_calls_unsupported": 1}


def test_o20_arguments_of_different_types_become_texts(store, import_rows):
    assert import_rows(tool_row(1, {"t": "x"}), tool_row(2, {"t": 1690})).usable_pairs == 2
    arguments = {pair.prompt[1]["tool_calls"][0]["function"]["arguments"] for pair in iter_pairs(store)}
    assert arguments == {'{"t":"x"}', '{"t":1690}'}


def test_o21_three_answers_give_best_against_worst_by_rank_not_by_place(store, import_rows):
    report = import_rows(rank_row(1, 1, 2, 0))
    assert report.usable_pairs == 1 and report.to_dict()["ranks"] == "best_vs_worst"
    assert pair_texts(store) == {("q1", "c", "b")}


def test_o21_three_answers_give_all_pairs_when_asked(store, import_rows):
    report = import_rows(rank_row(1, 1, 2, 0), ranks="all_pairs")
    assert report.usable_pairs == report.rows == 3 and report.to_dict()["ranks"] == "all_pairs"
    assert pair_texts(store) == {("q1", "c", "a"), ("q1", "a", "b"), ("q1", "c", "b")}


def test_o21_all_pairs_sets_a_tie_within_the_row_aside_and_keeps_the_rest(store, import_rows):
    report = import_rows(rank_row(1, 0, 0, 1), ranks="all_pairs")
    assert report.rows == 3 and report.usable_pairs == 2 and report.set_aside == {"tie": 1}


def test_o22_identical_and_empty_sides_are_refused(import_rows):
    report = import_rows(trl_row(1, "same", "same"), trl_row(2, chosen=""), trl_row(3, rejected="   "))
    assert report.set_aside == {"identical": 1, "empty_chosen": 1, "empty_rejected": 1}


def test_o23_a_system_text_is_the_first_turn_and_a_wrong_role_is_refused(store, import_rows):
    wrong = trl_row(2, rejected=[turn("user", "x")])
    report = import_rows(trl_row(1, system="Be brief"), wrong)
    assert report.usable_pairs == 1 and report.set_aside == {"bad_role": 1}
    assert report.first_problems[0]["field"] == "rejected[0].role"
    assert next(iter_pairs(store)).prompt == [turn("system", "Be brief"), turn("user", "q1")]


def test_o24_a_prompt_needs_a_user_turn_and_must_not_end_with_the_assistant(import_rows):
    only_system = {**rank_row(1), "context": [turn("system", "s")]}
    ends_wrong = {**rank_row(2), "context": [turn("user", "u"), turn("assistant", "a")]}
    report = import_rows(only_system, ends_wrong)
    assert report.set_aside == {"no_user_turn": 1, "context_not_ending_with_user": 1}
    assert [problem["field"] for problem in report.first_problems] == ["context", "context"]


def test_o25_a_transcript_is_cut_at_its_last_assistant_mark(store, import_rows):
    start = "\n\nHuman: hi\n\nAssistant: Hello.\n\nHuman:  two spaces\n\nAssistant:"
    report = import_rows({"chosen": start + " Sure, sell.", "rejected": start + " Sure, hold."})
    assert report.usable_pairs == 1 and report.files[0].formats == {"hh": 1}
    pair = next(iter_pairs(store))
    assert pair.prompt == [turn("user", "hi"), turn("assistant", "Hello."), turn("user", " two spaces")]
    assert (pair.chosen, pair.rejected) == ([turn("assistant", "Sure, sell.")], [turn("assistant", "Sure, hold.")])


def test_o25_transcripts_of_different_prompts_are_refused(import_rows):
    row = {"chosen": "\n\nHuman: a\n\nAssistant: x", "rejected": "\n\nHuman: b\n\nAssistant: y"}
    assert import_rows(row).set_aside == {"prompt_mismatch": 1}


def test_o25_an_explicit_prompt_may_be_a_transcript(store, import_rows):
    prompt = "\n\nHuman: hi\n\nAssistant:"
    assert import_rows({"prompt": prompt, "chosen": " Sell.", "rejected": prompt + " Hold."}).usable_pairs == 1
    assert pair_texts(store) == {("hi", "Sell.", "Hold.")}


def test_o26_plain_texts_without_a_prompt_are_refused(import_rows):
    report = import_rows({"chosen": "The sky is blue.", "rejected": "The sky is black."})
    assert report.usable_pairs == 0 and report.set_aside == {"no_prompt_boundary": 1}


def kto_row(number, answer, label):
    return {"messages": [turn("user", f"q{number}"), turn("assistant", answer)], "label": label}


def test_o27_decisions_without_a_counterpart_are_unpaired_and_all_rows_add_up(store, import_rows):
    rows = [kto_row(i, "an answer", i % 2 == 0) for i in range(298)]
    report = import_rows(kto_row("x", "good", True), kto_row("x", "bad", False), *rows)
    assert report.usable_pairs == 1 and report.decisions_used == 2
    assert report.set_aside == {"unpaired": 298}
    assert report.rows == report.decisions_used + sum(report.set_aside.values())
    assert pair_texts(store) == {("qx", "good", "bad")}
    assert build_pairs(store).by_origin == {"approve_reject": 1}


@pytest.mark.parametrize("label", ["yes", None, 2, 0.5, "", [True]])
def test_o27_a_label_that_is_neither_true_nor_false_is_refused(import_rows, label):
    assert import_rows(kto_row(1, "a", label)).set_aside == {"bad_label": 1}


@pytest.mark.parametrize(("good", "bad"), [(True, False), ("True", "FALSE"), (1, 0), ("1", "0")])
def test_o27_labels_are_read_in_their_usual_spellings(store, import_rows, good, bad):
    import_rows({"prompt": "q", "completion": "x", "label": good}, {"prompt": "q", "completion": "y", "label": bad})
    assert pair_texts(store) == {("q", "x", "y")}


def judge(answer, verdict, reviewer):
    return decision("q", answer, verdict, reviewer=reviewer).to_dict()


def test_o28_two_against_one_keeps_the_majority_with_its_share_as_weight(store, import_rows):
    report = import_rows(
        judge("good", "approve", "ann"), judge("good", "approve", "bob"), judge("good", "reject", "cem"),
        judge("bad", "reject", "ann"),
    )  # fmt: skip
    assert report.set_aside == {"outvoted": 1, "merged_vote": 1} and report.decisions_used == 2
    pair = next(iter_pairs(store))
    assert pair.weight == pytest.approx(2 / 3) and pair.chosen[0]["content"] == "good"


def test_o28_one_against_one_is_no_majority(import_rows):
    report = import_rows(judge("x", "approve", "ann"), judge("x", "reject", "bob"), judge("y", "reject", "ann"))
    assert report.usable_pairs == 0 and report.set_aside == {"no_majority": 2, "unpaired": 1}


def pandalm_row(number, *votes, **extra):
    row = {"instruction": f"q{number}", "input": "", "response1": "one", "response2": "two", **extra}
    return {**row, **{f"annotator{i}": vote for i, vote in enumerate(votes, 1)}}


def test_o28_three_annotators_of_a_row_are_one_panel(store, import_rows):
    report = import_rows(
        pandalm_row(1, 1, 1, 2), pandalm_row(2, 2, 2, 2), pandalm_row(3, 1, 2, 0), pandalm_row(4, 0, 0, 1),
        pandalm_row(5, 1, 2), pandalm_row(6, 1, 1, 1, response2=True), pandalm_row(7, 1, 1, 3),
    )  # fmt: skip
    assert report.set_aside == {"no_majority": 2, "tie": 1, "not_text": 1, "bad_preference": 1}
    weights = {pair.prompt[0]["content"]: pair.weight for pair in iter_pairs(store)}
    assert weights == {"q1": pytest.approx(2 / 3), "q2": 1.0}
    assert pair_texts(store) == {("q1", "one", "two"), ("q2", "two", "one")}


def test_o29_a_repeated_row_counts_once_and_both_directions_are_a_contradiction(store, import_rows):
    report = import_rows(trl_row(1, "a", "b"), trl_row(1, "a", "b"), trl_row(1, "b", "a"), trl_row(2))
    assert report.set_aside == {"duplicate": 1, "contradiction": 2}
    assert report.usable_pairs == 1 and pair_texts(store) == {("q2", "good", "bad")}


def test_o30_text_comes_back_byte_for_byte(store, import_bytes):
    rows = [
        {"prompt": WILD, "chosen": WILD, "rejected": WILD + "b"},
        decision(WILD, WILD, "reject", edit=WILD + "e").to_dict(),
    ]
    assert import_bytes(lines(*rows)).rows == 2
    texts = {pair.origin: pair for pair in iter_pairs(store)}
    assert texts["preference"].prompt == [turn("user", WILD)]
    assert texts["preference"].chosen == [turn("assistant", WILD)]
    assert texts["preference"].rejected == [turn("assistant", WILD + "b")]
    assert texts["edit"].chosen == [turn("assistant", WILD + "e")]
    for item in store.iter_events():
        assert FeedbackEvent.from_dict(item.event.to_dict()) == item.event


def test_o30_composed_and_decomposed_text_are_two_prompts(store, import_rows):
    rows = [{"prompt": text, "chosen": "a", "rejected": "b"} for text in ("caf\u00e9", "cafe\u0301")]
    import_rows(*rows)
    assert len({item.prompt_hash for item in store.iter_events()}) == 2
    assert preference("caf\u00e9", "a", "b").event_id != preference("cafe\u0301", "a", "b").event_id
