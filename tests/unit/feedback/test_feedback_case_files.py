"""Cases O01 to O11: files and encodings."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from feedback_rows import lines, pair_texts, rank_row, trl_row

from nvtrader_rl_dagster.feedback.importing import import_paths
from nvtrader_rl_dagster.feedback.store import FeedbackStore

TWO_PAIRS = {("q1", "a", "b"), ("q2", "a", "b")}


def test_o01_a_byte_order_mark_is_no_part_of_the_first_key(store, import_bytes):
    report = import_bytes(b"\xef\xbb\xbf" + lines(rank_row(1), rank_row(2)))
    assert report.usable_pairs == 2 and not report.set_aside
    assert pair_texts(store) == TWO_PAIRS


def test_o02_crlf_line_ends_leave_no_carriage_return(store, import_bytes):
    report = import_bytes(lines(rank_row(1), rank_row(2)).replace(b"\n", b"\r\n"))
    assert report.usable_pairs == 2
    assert pair_texts(store) == TWO_PAIRS


def test_o03_blank_lines_are_no_errors_and_are_counted_in_line_numbers(import_bytes):
    data = lines(rank_row(1)) + b"\n" + lines(rank_row(2)) + b" \n" + b"[broken\n" + lines(rank_row(3))
    report = import_bytes(data)
    assert report.rows == 4 and report.usable_pairs == 3
    assert report.set_aside == {"bad_json": 1}
    assert report.first_problems[0]["line"] == 5


def test_o04_a_truncated_last_line_is_set_aside_and_the_rest_is_kept(import_bytes):
    report = import_bytes(lines(rank_row(1), rank_row(2)) + b'{"context": [{"role": "us')
    assert report.usable_pairs == 2
    assert report.set_aside == {"truncated_json": 1}
    assert report.first_problems[0]["line"] == 3
    assert report.partial and report.to_dict()["partial"] is True


def test_o04_a_line_that_stops_early_in_the_middle_is_bad_json_and_the_file_is_not_partial(import_bytes):
    report = import_bytes(lines(rank_row(1)) + b'{"context": [{"role": "us\n' + lines(rank_row(2)))
    assert report.usable_pairs == 2 and report.set_aside == {"bad_json": 1}
    assert report.first_problems[0]["line"] == 2
    assert not report.partial


def test_o05_a_gzipped_file_is_read(store, import_bytes):
    assert import_bytes(gzip.compress(lines(rank_row(1))), "a.jsonl.gz").usable_pairs == 1


def test_o05_gzip_is_recognised_by_its_first_bytes_without_the_extension(import_bytes):
    assert import_bytes(gzip.compress(lines(rank_row(1))), "a.jsonl").usable_pairs == 1


@pytest.mark.parametrize("name", ["A.JSONL", "a.NdJson", "A.JsonL.GZ", "a.JSON"])
def test_o06_extensions_in_any_letter_case_are_accepted(import_bytes, name):
    data = lines(rank_row(1))
    assert import_bytes(gzip.compress(data) if name.endswith("GZ") else data, name).usable_pairs == 1


@pytest.mark.parametrize("data", [b"", b"\n \n", b"\xef\xbb\xbf", b"[]"])
def test_o07_an_empty_file_is_reported_as_no_rows(import_bytes, data):
    report = import_bytes(data)
    assert report.rows == 0 and report.usable_pairs == 0 and not report.set_aside
    assert report.files[0].problem == "no_rows"
    assert report.first_problems[0]["reason"] == "no_rows"


def test_o08_bytes_that_are_not_utf8_cost_one_row_and_are_named_by_offset(store, import_bytes):
    bad = b'{"prompt":"caf\xe9","chosen":"a","rejected":"b"}\n'
    report = import_bytes(lines(trl_row(1)) + bad + lines(trl_row(2)))
    assert report.usable_pairs == 2 and report.set_aside == {"bad_utf8": 1}
    assert "byte 14" in report.first_problems[0]["detail"]
    assert next(iter(store.iter_set_aside()))["raw"].startswith('{"prompt":"caf\\xe9"')


def test_o08_bytes_that_are_not_utf8_cost_one_row_of_an_array(store, import_bytes):
    bad = b'[{"prompt":"caf\xe9","chosen":"a","rejected":"b"},\n' + json.dumps(trl_row(1)).encode() + b"]"
    report = import_bytes(bad, "rows.json")
    assert report.usable_pairs == 1 and report.set_aside == {"bad_utf8": 1}
    assert "byte 14" in report.first_problems[0]["detail"]


def test_o09_a_lone_surrogate_is_refused_and_a_valid_pair_is_kept(store, import_bytes):
    lone = b'{"prompt":"\\ud83d x","chosen":"a","rejected":"b"}\n'
    rocket = b'{"prompt":"\\ud83d\\ude80","chosen":"a","rejected":"b"}\n'
    report = import_bytes(lone + rocket)
    assert report.set_aside == {"lone_surrogate": 1} and report.first_problems[0]["field"] == "prompt"
    assert pair_texts(store) == {("🚀", "a", "b")}


def test_o10_a_duplicate_key_is_refused_instead_of_the_last_one_winning(import_bytes):
    report = import_bytes(b'{"prompt":"q","chosen":"a","chosen":"b","rejected":"c"}\n' + lines(trl_row(1)))
    assert report.usable_pairs == 1 and report.set_aside == {"duplicate_key": 1}
    assert report.first_problems[0]["field"] == "chosen"


def test_o10_a_duplicate_key_deep_in_the_row_is_found_too(import_bytes):
    row = b'{"prompt":[{"role":"user","content":"a","content":"b"}],"chosen":"a","rejected":"c"}\n'
    assert import_bytes(row).set_aside == {"duplicate_key": 1}


def test_o11_a_huge_row_is_too_long_and_costs_less_than_ten_times_its_size(tmp_path):
    size = 30_000_000
    path = tmp_path / "huge.jsonl"
    path.write_bytes(lines(trl_row(1, chosen="x" * size), trl_row(2)))
    code = f"""
import resource, sys
from nvtrader_rl_dagster.feedback.importing import import_paths
from nvtrader_rl_dagster.feedback.store import FeedbackStore
store = FeedbackStore("sqlite:///{tmp_path / "huge.db"}")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = import_paths(store, [{str(path)!r}])
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(report.usable_pairs, dict(report.set_aside), (after - before) * 1024)
"""
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    counts, grown = done.stdout.strip().rsplit(" ", 1)
    assert counts == "1 {'too_long': 1}"
    assert int(grown) < 10 * size


def test_a_row_over_the_reader_limit_is_refused_without_losing_the_next_one(import_bytes, monkeypatch):
    monkeypatch.setattr("nvtrader_rl_dagster.feedback.readers.json_rows.ROW_LIMIT", 1000)
    report = import_bytes(lines(trl_row(1), trl_row(2, chosen="x" * 5000), trl_row(3)))
    assert report.usable_pairs == 2 and report.set_aside == {"too_long": 1}
    assert report.first_problems[0]["line"] == 2


def test_a_damaged_gzip_keeps_the_rows_before_the_damage_and_counts_once(store, tmp_path):
    rows = [trl_row(i, chosen=f"{i * 7919 % 10007}" * 20) for i in range(2000)]
    whole = gzip.compress(lines(*rows))
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    report = import_paths(store, [path])
    assert report.set_aside == {"truncated_gzip": 1} and report.partial
    assert 100 < report.usable_pairs < 2000
    assert report.rows == report.usable_pairs + 1


def test_garbage_after_the_gzip_data_is_reported(import_bytes):
    report = import_bytes(gzip.compress(lines(trl_row(1))) + b"\x1f\x8bgarbage", "a.jsonl.gz")
    assert report.usable_pairs == 1 and report.set_aside == {"truncated_gzip": 1}


@pytest.mark.slow
def test_peak_memory_does_not_grow_with_the_file(tmp_path):
    def peak(rows: int) -> float:
        path = tmp_path / f"{rows}.jsonl"
        with path.open("wb") as out:
            for i in range(rows):
                out.write(lines(trl_row(i, chosen=f"{i} " + "good " * 60, rejected=f"{i} " + "bad " * 60)))
        code = f"""
import resource
from nvtrader_rl_dagster.feedback.importing import import_paths
from nvtrader_rl_dagster.feedback.store import FeedbackStore
report = import_paths(FeedbackStore("sqlite:///{tmp_path}/{rows}.db"), [{str(path)!r}])
assert report.usable_pairs == {rows}, report
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
        root = Path(__file__).resolve().parents[3]
        done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
        return float(done.stdout)

    assert peak(120_000) < 1.2 * peak(30_000)


def test_the_store_stays_usable_after_a_file_that_cannot_be_read(store: FeedbackStore, import_bytes):
    report = import_bytes(b"PAR1 this is no parquet", "a.parquet")
    assert report.set_aside == {"unreadable_file": 1} and report.partial
    assert import_bytes(lines(trl_row(1))).usable_pairs == 1
