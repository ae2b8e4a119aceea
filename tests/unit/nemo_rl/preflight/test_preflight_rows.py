"""Each kind of bad row is found, named and counted; what NeMo-RL reads is accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet
import pytest
from looking import case_of, make_tree

from nvtrader_rl_dagster.local_trainer.config import Section
from nvtrader_rl_dagster.local_trainer.preference_data import read_pairs
from nvtrader_rl_dagster.nemo_rl.preflight.case import Case
from nvtrader_rl_dagster.nemo_rl.preflight.data_blocks import data_blocks
from nvtrader_rl_dagster.nemo_rl.preflight.data_rows import LoaderRules, Scan, scan
from nvtrader_rl_dagster.nemo_rl.preflight.report import Finding, Level
from tests import preflight_cases
from tests.preflight_cases import CASES, GOOD, DataCase, binary, chat, lines, pair, question, ranks


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tree(tmp_path_factory.mktemp("tree") / "nemo-rl")


def looked_at(case: Case) -> tuple[list[Scan], list[Finding]]:
    """The scans of a case's data sets, and everything that was found about them."""
    looked = preflight_cases.looked_at(case)
    return looked.scans, looked.findings


def refusals(findings: list[Finding]) -> list[str]:
    return [finding.code for finding in findings if finding.level is Level.REFUSE]


@pytest.mark.parametrize("datasets", ["4.4.1", "4.8.5"])
@pytest.mark.parametrize("data", CASES, ids=lambda case: case.name)
def test_a_file_is_refused_for_what_ends_a_run(data: DataCase, datasets: str, tree: Path, tmp_path: Path) -> None:
    _, findings = looked_at(case_of(data.algo, {"data": data.data(tmp_path)}, tree, datasets))
    newer = data.newer is not None and datasets == "4.8.5"
    expected = data.newer if newer else data.refused
    assert refusals(findings) == ([expected] if expected else [])
    assert all(finding.remedy for finding in findings if finding.level is not Level.OK)


@pytest.mark.parametrize("data", [case for case in CASES if case.algo == "dpo"], ids=lambda case: case.name)
def test_the_embedded_trainer_refuses_the_same_files_as_the_preflight_for_it(data: DataCase, tmp_path: Path) -> None:
    section = data.data(tmp_path)
    _, findings = looked_at(case_of("dpo", {"data": section}, None))
    try:
        read_pairs(Section(section["train"], "data.train"))
    except ValueError as error:
        assert refusals(findings), error
    else:
        assert refusals(findings) == []


def test_the_first_bad_rows_are_named_and_all_are_counted(tree: Path, tmp_path: Path) -> None:
    bad = [ranks(n, n) for n in range(7)]
    content = lines(pair()) + b"\n" + lines(*bad) + lines(pair(context=None), pair(2))
    data = DataCase("mixed", content).data(tmp_path)
    (found,), findings = looked_at(case_of("dpo", {"data": data}, tree))
    assert (found.rows, found.bad, dict(found.problems)) == (10, 8, {"tie": 7, "missing_field": 1})
    tie, missing = (finding for finding in findings if finding.level is Level.REFUSE)
    file = data["train"]["data_path"]
    assert f"train: 7 of 10 rows: {file}:3 completions[].rank: both are 0; {file}:4" in tie.message
    assert "(and 4 more)" in tie.message and tie.message.count(file) == 3
    assert f"{file}:10 context: it is not there, or null" in missing.message and missing.remedy


def test_blank_lines_do_not_shift_the_numbers_of_lines(tree: Path, tmp_path: Path) -> None:
    """Case O03."""
    content = GOOD + b"\n \n\n" + b"{broken"
    _, (finding, *_) = looked_at(case_of("dpo", {"data": DataCase("blank", content).data(tmp_path)}, tree))
    assert "rows.jsonl:6: not valid JSON" in finding.message


@pytest.mark.parametrize(
    "text",
    [
        *("2024-01-01", "2024-01-01T10:00:00", "2024-01-01 10:00", "2024-01-01 10", "2024-01-01T10:00:00Z"),
        *("2024-01-01T10:00:00+01:00", "2024-01-01 10:00:00.5", "2024-01", "10:00:00", "20240101", "2024-01-01Z"),
        *("2024-13-01", "2024-1-1", "2024-01-01T100000", "on 2024-01-01", "2024"),
    ],
)
def test_dates_are_those_that_arrow_takes_for_dates(text: str, tree: Path, tmp_path: Path) -> None:
    data = DataCase("dates", lines(question(output=text)), algo="grpo").data(tmp_path)
    _, findings = looked_at(case_of("grpo", {"data": data}, tree))
    kind = pyarrow.json.read_json(data["train"]["data_path"]).schema.field("output").type
    assert refusals(findings) == (["all_dates"] if pa.types.is_timestamp(kind) else [])


def test_a_row_of_thirty_million_characters_is_read(tree: Path, tmp_path: Path) -> None:
    """Case O11."""
    content = lines(pair(completions__0__completion__0__content="x" * 30_000_000))
    case = case_of("dpo", {"data": DataCase("huge", content).data(tmp_path)}, tree)
    (block,), _ = data_blocks(case)
    found = scan(block, case, LoaderRules.of(case), 64)
    assert (found.rows, found.bad, found.doubtful_rows) == (1, 0, 1) and found.longest_bound > 30_000_000


@pytest.mark.parametrize(
    ("row", "note"),
    [
        (pair(completions__0__completion__0__content=""), "empty_completion"),
        (pair(completions__1__completion__0__content="a"), "identical_sides"),
    ],
)
def test_pairs_that_teach_nothing_are_warned_of(row: dict[str, Any], note: str, tree: Path, tmp_path: Path) -> None:
    """Case O22: NeMo-RL trains on them."""
    _, findings = looked_at(case_of("dpo", {"data": DataCase("x", lines(row, pair(2))).data(tmp_path)}, tree))
    assert [(f.level, f.code) for f in findings if f.level is not Level.OK] == [(Level.WARN, note)]
    assert "1 of 2 rows" in findings[0].message


def test_outputs_that_no_answer_can_match_are_warned_of(tree: Path, tmp_path: Path) -> None:
    data = DataCase("x", lines(question(output=None), question(output=5)), algo="grpo").data(tmp_path)
    _, findings = looked_at(case_of("grpo", {"data": data}, tree, datasets="4.8.5"))
    assert {f.code for f in findings if f.level is Level.WARN} == {"null_output", "no_text_output"}


def test_a_validation_file_is_read_as_well(tree: Path, tmp_path: Path) -> None:
    data = DataCase("x", GOOD).data(tmp_path)
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_bytes(lines(pair(), ranks(1, 1)))
    data["validation"] = {**data["train"], "data_path": str(held_out)}
    scans, findings = looked_at(case_of("dpo", {"data": data}, tree))
    assert [(found.block.name, found.bad) for found in scans] == [("train", 0), ("default", 1)]
    assert refusals(findings) == ["tie"] and "default: 1 of 2 rows" in findings[0].message


def test_named_validation_sets_are_rank_files(tree: Path, tmp_path: Path) -> None:
    data = DataCase("x", GOOD).data(tmp_path)
    other = tmp_path / "other.jsonl"
    other.write_bytes(lines(binary()))
    data["val_data_paths"] = {"alpha": data["train"]["data_path"], "beta": str(other)}
    scans, findings = looked_at(case_of("rm", {"data": data}, tree))
    assert [found.block.name for found in scans] == ["train", "alpha", "beta"]
    assert refusals(findings) == ["missing_field"]


def test_missing_keys_of_a_block_come_from_the_default(tree: Path, tmp_path: Path) -> None:
    data = DataCase("x", lines({"frage": "q", "output": "a"}), algo="grpo").data(tmp_path)
    data["default"] = {"dataset_name": data["train"].pop("dataset_name"), "input_key": "frage"}
    scans, findings = looked_at(case_of("grpo", {"data": data}, tree))
    assert refusals(findings) == [] and scans[0].rows == 1


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"train": None}, "no_train_data"),
        ({"default": None}, "data_default"),
        ({"train": {"data_path": "x.jsonl"}}, "dataset_name"),
        ({"train": {"dataset_name": "PreferenceDataset"}}, "data_path"),
        ({"train": {"dataset_name": "Preferences", "data_path": "x.jsonl"}}, "dataset_name"),
        ({"train": {"dataset_name": "PreferenceDataset", "data_path": "x.jsonl"}}, "file_missing"),
        ({"train": {"dataset_name": "PreferenceDataset", "data_path": "/no/where"}}, "file_missing"),
        ({"train": {"dataset_name": "PreferenceDataset", "data_path": "org/name"}}, "hub_offline"),
        ({"train": [{"dataset_name": "PreferenceDataset", "data_path": "x.jsonl"}]}, "data_list"),
    ],
)
def test_a_block_that_names_no_data_is_refused(changes: dict[str, Any], code: str, tree: Path, tmp_path: Path) -> None:
    data = {**DataCase("x", GOOD).data(tmp_path), **changes}
    assert code in refusals(looked_at(case_of("dpo", {"data": data}, tree))[1])


def test_a_hub_data_set_in_the_cache_is_accepted_and_said_to_be_unread(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    (tmp_path / "hub" / "datasets--org--name").mkdir(parents=True)
    data = {"train": {"dataset_name": "PreferenceDataset", "data_path": "org/name"}}
    _, (finding, *rest) = looked_at(case_of("dpo", {"data": data}, tree))
    assert (finding.level, finding.code, rest) == (Level.WARN, "unchecked_data", [])


def test_tables_are_read_row_by_row(tree: Path, tmp_path: Path) -> None:
    table = pa.table({"prompt": ["q", "p"], "chosen": ["a", None], "rejected": ["b", "c"]})
    parquet, arrow = tmp_path / "rows.parquet", tmp_path / "rows.arrow"
    pa.parquet.write_table(table, parquet)
    with pa.OSFile(str(arrow), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    for file in (parquet, arrow):
        data = {"train": {"dataset_name": "BinaryPreferenceDataset", "data_path": str(file)}}
        (found,), findings = looked_at(case_of("dpo", {"data": data}, tree))
        assert found.rows == 2 and refusals(findings) == ["null_text"]
        assert f"{file}:2 chosen: it is null" in findings[0].message


def test_a_local_benchmark_needs_a_text_for_each_problem(tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    file.write_bytes(orjson.dumps([{"problem": "1+1", "solution": 2}, {"problem": None, "solution": 3}]))
    data = {
        "dataset_name": str(file),
        "file_format": "json",
        "problem_key": "problem",
        "solution_key": "solution",
        "split": "train",
    }
    (found,), findings = looked_at(case_of("eval", {"data": data}, tree))
    assert found.rows == 2 and refusals(findings) == ["null_text"]
    _, findings = looked_at(case_of("eval", {"data": {**data, "split": None}}, tree))
    assert refusals(findings) == ["split"]
    _, findings = looked_at(case_of("eval", {"data": {**data, "problem_key": "question"}}, tree))
    assert refusals(findings) == ["missing_field"]


def test_the_preserving_data_set_is_refused_where_it_fails(tree: Path, tmp_path: Path) -> None:
    data = DataCase("x", lines(chat("user", "assistant")), algo="sft", block={"use_preserving_dataset": True})
    section = {"data": data.data(tmp_path)}
    assert refusals(looked_at(case_of("sft", section, tree))[1]) == ["preserving_dataset"]
    assert refusals(looked_at(case_of("sft", section, tree, version="0.7.0"))[1]) == []


def test_a_byte_order_mark_before_an_array_is_refused_where_the_loader_cannot_read_it(
    tree: Path, tmp_path: Path
) -> None:
    data = {"data": DataCase("x", b"\xef\xbb\xbf" + orjson.dumps([pair()]), file="rows.json").data(tmp_path)}
    assert refusals(looked_at(case_of("dpo", data, tree, "4.8.5"))[1]) == ["byte_order_mark"]
    assert refusals(looked_at(case_of("dpo", data, tree, "5.2.0"))[1]) == []
