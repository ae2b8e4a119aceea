"""Files: which are found, and how JSON, CSV and Parquet are read."""

from __future__ import annotations

import csv
import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from feedback_rows import WILD, lines, pair_texts, rank_row, trl_row, turn
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_rl_dagster.feedback.importing import import_paths
from nvtrader_rl_dagster.feedback.pair_report import iter_pairs
from nvtrader_rl_dagster.feedback.readers import FeedbackFileError, iter_files, json_rows, read_rows
from nvtrader_rl_dagster.feedback.readers.files import FeedbackFile

ROWS = [rank_row(1), rank_row(2), rank_row(3)]


def test_a_folder_is_read_in_sorted_order_without_hidden_and_foreign_files(tmp_path):
    for name in ("b.jsonl", "a/z.JSON.gz", "a/.hidden.jsonl", ".git/x.json", "notes.txt", "c.csv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    assert [file.name for file in iter_files([tmp_path, tmp_path / "b.jsonl"])] == ["a/z.JSON.gz", "b.jsonl", "c.csv"]


@pytest.mark.parametrize("name", ["missing.jsonl", "empty", "notes.txt"])
def test_paths_that_cannot_be_imported_are_named(store, tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(FeedbackFileError, match=name):
        import_paths(store, [tmp_path / name])


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ROWS),
        json.dumps(ROWS, indent=2),
        "\ufeff" + json.dumps(ROWS, indent=1),
        "\n".join(json.dumps(row) for row in ROWS),
        "\n".join(json.dumps(row, indent=4) for row in ROWS),
        "".join(json.dumps(row) for row in ROWS),
        "[" + ",\n".join(json.dumps(row) for row in ROWS) + "]\n",
    ],
)
@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl"])
def test_every_usual_layout_of_json_is_read(store, import_bytes, name, text):
    one_a_line = text.startswith("{") and name == "rows.jsonl" and "\n" in text and "    " not in text
    if name == "rows.jsonl" and text.startswith("{") and not one_a_line:
        pytest.skip("not JSON lines")
    assert import_bytes(text.encode(), name).usable_pairs == 3
    assert pair_texts(store) == {(f"q{i}", "a", "b") for i in (1, 2, 3)}


def test_a_single_object_is_one_row(import_bytes):
    assert import_bytes(json.dumps(rank_row(1), indent=2).encode(), "one.json").usable_pairs == 1


def test_line_numbers_in_an_array_are_those_of_the_file(import_bytes):
    rows = [trl_row(1), {"x": 1}, trl_row(2), {"y": 2}]
    text = json.dumps(rows, indent=2)
    report = import_bytes(text.encode(), "rows.json")
    wanted = [i for i, line in enumerate(text.split("\n"), 1) if line == "  {"]
    assert [problem["line"] for problem in report.first_problems] == [wanted[1], wanted[3]]


def test_a_cut_array_keeps_the_items_before_the_cut(import_bytes):
    text = json.dumps(ROWS, indent=2)
    report = import_bytes(text[: text.rindex("rank") + 3].encode(), "rows.json")
    assert report.usable_pairs == 2 and report.set_aside == {"truncated_json": 1} and report.partial


def test_an_array_that_is_not_closed_is_truncated(import_bytes):
    report = import_bytes(json.dumps(ROWS)[:-1].encode(), "rows.json")
    assert report.usable_pairs == 3 and report.set_aside == {"truncated_json": 1}


@pytest.mark.parametrize("indent", [None, 2])
def test_a_broken_item_does_not_cost_the_items_on_later_lines(import_bytes, indent):
    items = [json.dumps(row, indent=indent) for row in ROWS]
    items[1] = items[1].replace('"rank": 1', '"rank": 1 1')
    text = "[\n  " + ",\n  ".join(item.replace("\n", "\n  ") for item in items) + "\n]"
    report = import_bytes(text.encode(), "rows.json")
    assert report.usable_pairs == 2 and report.set_aside == {"bad_json": 1} and not report.partial


def test_a_broken_item_on_the_only_line_ends_the_file_and_says_so(import_bytes):
    report = import_bytes(json.dumps(ROWS).replace('"q2"', "q2").encode(), "rows.json")
    assert report.usable_pairs == 1 and report.set_aside == {"bad_json": 1} and report.partial


@given(st.lists(st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.none()))), st.integers(1, 40))
def test_arrays_are_read_the_same_whatever_the_size_of_the_window(values, chunk):
    source = io.BufferedReader(io.BytesIO(json.dumps(values, ensure_ascii=False, indent=1).encode(errors="replace")))
    expected = json.loads(json.dumps(values, ensure_ascii=False).encode(errors="replace"))
    before = json_rows._CHUNK
    json_rows._CHUNK = chunk
    try:
        assert [row.value for row in json_rows.read_json_values(source)] == expected
    finally:
        json_rows._CHUNK = before


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"prompt": ' + b"9" * 5000 + b"}",
        b'{"prompt": 1e999, "chosen": "a", "rejected": "b"}',
        b'{"prompt": NaN, "chosen": "a", "rejected": "b"}',
        b'{"prompt": "q", "chosen": "a", "rejected": "b"} {}',
        b'{"prompt": "q\x01", "chosen": "a", "rejected": "b"}',
        b"nothing",
    ],
)
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
def test_broken_json_costs_its_own_line_only(import_bytes, name, line):
    if name == "rows.json" and line.startswith(b"["):
        pytest.skip("opens an array, see the next test")
    report = import_bytes(lines(trl_row(1)) + line + b"\n" + lines(trl_row(2)), name)
    extra = name == "rows.json" and line.endswith(b"{}")  # two values in a stream of values
    assert report.usable_pairs == (3 if extra else 2)
    assert sum(report.set_aside.values()) == 1
    assert set(report.set_aside) == ({"unknown_shape"} if extra else {"bad_json"})


def test_brackets_nested_too_deeply_end_a_json_file_with_a_reason(import_bytes):
    report = import_bytes(lines(trl_row(1)) + b"[" * 100_000 + b"\n" + lines(trl_row(2)), "rows.json")
    assert report.usable_pairs == 1 and report.set_aside == {"bad_json": 1} and report.partial


def csv_bytes(header, *rows) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue().encode()


def test_csv_cells_are_text_and_a_list_of_messages_is_decoded(store, import_bytes):
    wild = WILD.replace("\x00", "")
    messages = json.dumps([turn("user", "hi"), turn("assistant", "x"), turn("user", "q")])
    data = csv_bytes(
        ["prompt", "chosen", "rejected"], [messages, "[1, 2]", '{"a": 1}'], ["two\nlines", wild, "b"], ["q", "1", "2"]
    )
    assert import_bytes(data, "rows.csv").usable_pairs == 3
    assert pair_texts(store) == {("q", "[1, 2]", '{"a": 1}'), ("two\nlines", wild, "b"), ("q", "1", "2")}
    assert 3 in [len(pair.prompt) for pair in iter_pairs(store)]


def test_csv_numbers_of_known_columns_are_numbers(import_bytes):
    data = csv_bytes(
        ["context", "response1", "response2", "overall_preference"], ["q", "a", "b", "-2"], ["q", "a", "c", "x"]
    )
    report = import_bytes(data, "rows.csv")
    assert report.usable_pairs == 1 and report.set_aside == {"bad_preference": 1}


def test_csv_rows_that_do_not_fit_cost_only_themselves(import_bytes):
    data = (
        b"\xef\xbb\xbfprompt,chosen,rejected\r\nq1,a,b\r\nq2,a\r\n\r\nq3,a,b,c\r\nq4,caf\xe9,b\r\n"
        b'q5,"a"x,b\r\nq6,a,b\r\nq7,"open,b\r\n'
    )
    report = import_bytes(data, "rows.csv")
    assert report.usable_pairs == 2 and report.set_aside == {"bad_csv": 4, "bad_utf8": 1}
    assert {p["line"]: p["field"] for p in report.first_problems} == {3: None, 5: None, 6: "chosen", 7: None, 9: None}


def test_csv_with_a_header_only_has_no_rows_and_a_doubled_column_is_refused(import_bytes):
    assert import_bytes(b"prompt,chosen\n", "rows.csv").files[0].problem == "no_rows"
    assert import_bytes(b"prompt,chosen,chosen\nq,a,b\n", "rows.csv").set_aside == {"duplicate_key": 1}


@pytest.mark.parametrize("name", ["rows.parquet", "rows.Parquet.gz"])
def test_parquet_rows_get_no_null_keys_from_the_columns_of_others(store, import_bytes, name):
    call = {"type": "function", "function": {"name": "price", "arguments": "{}"}}
    tools = [
        turn("user", "q2"),
        {**turn("assistant", ""), "tool_calls": [call]},
        {**turn("tool", "1"), "tool_call_id": "c"},
    ]
    rows = [rank_row(1), {**rank_row(2), "context": tools}, {**rank_row(3), "context": None}]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    data = out.getvalue()
    report = import_bytes(gzip.compress(data) if name.endswith("gz") else data, name)
    assert report.usable_pairs == 2 and report.set_aside == {"missing_context": 1}
    assert report.first_problems[0]["line"] == 3
    prompts = [pair.prompt for pair in iter_pairs(store)]
    assert [turn("user", "q1")] in prompts and tools in prompts


def test_a_cut_parquet_file_is_unreadable_and_its_gzipped_form_too(import_bytes):
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([rank_row(1)]), out)
    cut = out.getvalue()[:-20]
    assert import_bytes(cut, "cut.parquet").set_aside == {"unreadable_file": 1}
    assert import_bytes(gzip.compress(cut)[:-9], "cut.parquet.gz").set_aside == {"truncated_gzip": 1}


def test_a_file_that_cannot_be_opened_is_one_refused_row(tmp_path):
    rows = list(read_rows(FeedbackFile(tmp_path / "gone.jsonl", "gone.jsonl", "jsonl")))
    assert [row.problem.reason for row in rows] == ["unreadable_file"]
