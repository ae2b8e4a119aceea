"""Whatever a file holds, the import ends, and every row is either used or set aside with a reason."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from pathlib import Path

import pytest
from feedback_rows import lines
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nvtrader_rl_dagster.feedback.events import decision, preference
from nvtrader_rl_dagster.feedback.importers import FORMATS, ImportOptions
from nvtrader_rl_dagster.feedback.importing import import_paths
from nvtrader_rl_dagster.feedback.pair_report import build_pairs, iter_judgements
from nvtrader_rl_dagster.feedback.reasons import REASONS
from nvtrader_rl_dagster.feedback.store import FeedbackStore

FUZZ = settings(
    max_examples=int(os.environ.get("NVTRADER_RL_FUZZ_EXAMPLES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
NAMES = st.sampled_from(["a.jsonl", "a.json", "a.csv", "a.parquet", "a.jsonl.gz", "a.csv.gz"])

WORD = st.sampled_from(
    ["", " ", "a", "b", "q", "\ud83d", "e\u0301", "\x00", "\n\nHuman: q\n\nAssistant: a", "true", "1", "0"]
)
ROLE = st.sampled_from(["user", "assistant", "system", "tool", "human", "gpt", "pm", "", None, 3])
TURN = st.fixed_dictionaries(
    {},
    optional={
        "role": ROLE, "from": ROLE, "value": WORD,
        "content": WORD | st.none() | st.just([{"type": "text", "text": "t"}]),
        "tool_calls": st.none() | st.just([{"function": {"name": "f", "arguments": {"x": 1}}}]) | st.integers(),
    },
)  # fmt: skip
GOOD_TURN = st.builds(lambda r, c: {"role": r, "content": c}, st.sampled_from(["user", "assistant"]), WORD)
TURNS = st.lists(GOOD_TURN | TURN, max_size=3)
LEAF = st.none() | st.booleans() | st.integers() | st.floats() | WORD
LEAVES = st.lists(LEAF, max_size=3) | st.dictionaries(WORD, LEAF, max_size=3)
WILD_VALUE = LEAF | LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(WORD, LEAVES, max_size=2)
VALUE = WORD | TURNS | WILD_VALUE | TURN
COMPLETIONS = st.lists(
    st.fixed_dictionaries({"rank": st.integers(0, 2) | WILD_VALUE, "completion": TURNS | WORD}) | WILD_VALUE, max_size=4
)
ROW = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("prompt", "context", "chosen", "rejected", "response1", "response2", "instruction"), VALUE),
        **dict.fromkeys(("conversations", "messages", "completion", "response", "edit", "system", "input"), VALUE),
        "completions": COMPLETIONS,
        "overall_preference": st.integers(-4, 4) | WILD_VALUE,
        "annotator1": st.integers(0, 3) | WILD_VALUE,
        "annotator2": st.integers(0, 2),
        "label": st.booleans() | WILD_VALUE,
        "kind": st.sampled_from(["preference", "decision", "undo", "x"]),
        "verdict": st.sampled_from(["approve", "reject", "", None]),
        "votes": st.lists(st.integers(-1, 2), max_size=4),
        "event_id": WORD | st.integers(), "target": WORD, "ts": WORD, "reviewer": WORD, "metadata": WILD_VALUE,
        "history": WILD_VALUE, "images": WILD_VALUE,
    },
)  # fmt: skip
PAIR_ROW = st.builds(
    lambda p, c, r, who: preference(p, c, r, reviewer=who).to_dict(),
    st.sampled_from("pq"), st.sampled_from("abc"), st.sampled_from("def"), st.sampled_from([None, "ann", "bob"]),
)  # fmt: skip
DECISION_ROW = st.builds(
    lambda p, r, v, e: decision(p, r, v, edit=e).to_dict(),
    st.sampled_from("pq"), st.sampled_from("abc"), st.sampled_from(["approve", "reject"]),
    st.sampled_from([None, "z", "a"]),
)  # fmt: skip


def check_import(data: bytes, name: str, **given_options):
    """Import the bytes twice into a fresh store; everything must add up and the second time change nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        store = FeedbackStore(f"sqlite:///{folder}/store.db")
        format_name = given_options.pop("format", "auto")
        options = ImportOptions(**given_options)
        report = import_paths(store, [path], format=format_name, options=options)
        again = import_paths(store, [path], format=format_name, options=options)
        assert again.events == 0
        assert (again.rows, again.usable_pairs, again.set_aside) == (report.rows, report.usable_pairs, report.set_aside)
        assert set(report.set_aside) <= set(REASONS)
        used = {seq for _, judged in iter_judgements(store) for seq, reason in judged.fates if reason is None}
        assert report.rows == len(used) + sum(report.set_aside.values())
        preferences = sum(item.event.kind == "preference" for item in store.iter_events() if item.seq in used)
        assert report.decisions_used == len(used) - preferences
        assert report.usable_pairs >= preferences
        if not report.decisions_used:
            assert report.rows == report.usable_pairs + sum(report.set_aside.values())
        counted = build_pairs(store)
        assert counted.decisions == counted.used + sum(counted.set_aside.values()) == report.rows
        json.dumps(report.to_dict())
        store.close()
        return report


@FUZZ
@given(st.binary(max_size=400), NAMES)
def test_random_bytes(data, name):
    check_import(data, name)


@FUZZ
@given(
    st.lists(ROW | PAIR_ROW | DECISION_ROW | WILD_VALUE, max_size=6),
    st.sampled_from(["a.jsonl", "a.json"]),
    st.booleans(),
)
def test_rows_of_known_keys_with_wild_values(rows, name, as_array):
    data = json.dumps(rows).encode() if as_array else lines(*rows)
    check_import(data, name)


@FUZZ
@given(st.lists(ROW, max_size=4), st.sampled_from([*FORMATS]), st.sampled_from(["best_vs_worst", "all_pairs"]))
def test_rows_of_known_keys_under_a_forced_format(rows, format_name, ranks):
    check_import(lines(*rows), "a.jsonl", format=format_name, ranks=ranks, tool_calls="refuse", max_chars=60)


@FUZZ
@given(st.lists(PAIR_ROW | DECISION_ROW, min_size=1, max_size=8), st.data())
def test_good_rows_cut_or_damaged_at_any_byte(rows, data):
    whole = lines(*rows)
    if data.draw(st.booleans(), label="array"):
        whole = json.dumps(rows, indent=data.draw(st.sampled_from([None, 1]))).encode()
    name = data.draw(st.sampled_from(["a.jsonl", "a.json", "a.jsonl.gz"]))
    if name.endswith("gz"):
        whole = gzip.compress(whole)
    place = data.draw(st.integers(0, len(whole)))
    changed = data.draw(st.sampled_from([b"", b"\xff", b'"', b"}", b"\n", b"[", b"\\ud800"]))
    keep = data.draw(st.booleans(), label="keep the rest")
    check_import(whole[:place] + changed + (whole[place:] if keep else b""), name)


@FUZZ
@given(st.lists(PAIR_ROW, max_size=10))
def test_good_pairs_are_all_used_or_set_aside_and_never_refused(rows):
    report = check_import(lines(*rows), "a.jsonl")
    assert report.rows == len(rows) == report.usable_pairs + sum(report.set_aside.values())
    assert report.files[0].refused == 0


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_every_reason_has_an_explanation_and_a_remedy(reason):
    assert REASONS[reason].explanation and REASONS[reason].remedy
