"""Data files with the verdict that NeMo-RL's own loaders give them: shared by the unit and the contract tests."""

from __future__ import annotations

import copy
import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from nvtrader_rl_dagster.nemo_rl.preflight import lengths
from nvtrader_rl_dagster.nemo_rl.preflight.case import Case
from nvtrader_rl_dagster.nemo_rl.preflight.data_blocks import data_blocks
from nvtrader_rl_dagster.nemo_rl.preflight.data_rows import LoaderRules, Scan, findings_of, scan
from nvtrader_rl_dagster.nemo_rl.preflight.report import Finding, Level, SetRows
from nvtrader_rl_dagster.nemo_rl.preflight.rollout_checks import check_processors
from nvtrader_rl_dagster.nemo_rl.preflight.steps import plan_steps

#: Tokens of a row; far above what the short rows can have.
LIMIT = 512


@dataclass(frozen=True)
class DataCase:
    """refused: the code of the refusal, empty for a file that can be used. newer: the same where the `datasets`
    library keeps mixed types (4.7 and later), if it differs. masked: rows above `LIMIT`.
    """

    name: str
    content: bytes
    refused: str = ""
    newer: str | None = None
    algo: str = "dpo"
    file: str = "rows.jsonl"
    block: dict[str, Any] = field(default_factory=dict)
    masked: int = 0

    def data(self, folder: Path) -> dict[str, Any]:
        """The `data` section over the file, which is written into a folder of its own."""
        path = folder / self.name / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.content)
        kind = {"dpo": "PreferenceDataset", "sft": "openai_format", "grpo": "ResponseDataset"}[self.algo]
        block = {"dataset_name": kind, "data_path": str(path)}
        if self.algo != "dpo":
            processor = "sft_processor" if self.algo == "sft" else "math_hf_data_processor"
            block |= {"processor": processor, "prompt_file": None, "system_prompt_file": None}
        return {
            "max_input_seq_length": LIMIT,
            "train": {**block, **self.block},
            "validation": None,
            **({"add_bos": True, "add_eos": True, "add_generation_prompt": False} if self.algo == "sft" else {}),
        }


def pair(number: int = 1, **changes: Any) -> dict[str, Any]:
    """A row of the rank shape. A change's key is dotted, its value `...` for a key that is taken out."""
    row: dict[str, Any] = {
        "context": [{"role": "user", "content": f"q{number}"}],
        "completions": [
            {"rank": 0, "completion": [{"role": "assistant", "content": "a"}]},
            {"rank": 1, "completion": [{"role": "assistant", "content": "b"}]},
        ],
    }
    return changed(row, changes)


def changed(row: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    row = copy.deepcopy(row)
    for dotted, value in changes.items():
        *parents, leaf = (int(key) if key.isdecimal() else key for key in dotted.split("__"))
        place: Any = row
        for key in parents:
            place = place[key]
        if value is ...:
            del place[leaf]
        else:
            place[leaf] = value
    return row


def ranks(first: Any, second: Any) -> dict[str, Any]:
    return pair(completions__0__rank=first, completions__1__rank=second)


def lines(*rows: Any) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def chat(*roles: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": f"{role} text"} for role in roles], **more}


def binary(**changes: Any) -> dict[str, Any]:
    return changed({"prompt": "q", "chosen": "a", "rejected": "b"}, changes)


def question(**changes: Any) -> dict[str, Any]:
    return changed({"input": "q", "output": "a"}, changes)


GOOD = lines(pair(1), pair(2))
LONG = "x y " * 2000
_BINARY = {"dataset_name": "BinaryPreferenceDataset"}
_RESPONSE = {"dataset_name": "ResponseDataset"}


def _files() -> Iterator[DataCase]:
    """Cases O01 to O10: encodings, endings, broken lines."""
    yield DataCase("plain", GOOD)
    yield DataCase("byte_order_mark", b"\xef\xbb\xbf" + GOOD)
    yield DataCase("windows_lines", GOOD.replace(b"\n", b"\r\n"))
    yield DataCase("blank_lines", lines(pair(1)) + b"\n" + lines(pair(2)) + b" \n")
    yield DataCase("no_newline_at_the_end", GOOD[:-1])
    yield DataCase("cut_line", GOOD + b'{"context": [{"role": "us', "broken_json")
    yield DataCase("trailing_comma", GOOD.replace(b"]}\n", b"],}\n"), "broken_json")
    yield DataCase("packed", gzip.compress(GOOD), "wrong_extension", file="rows.jsonl.gz")
    yield DataCase("capital_ending", GOOD, "wrong_extension", file="ROWS.JSONL")
    yield DataCase("empty", b"", "no_rows")
    yield DataCase("only_blank_lines", b"\n\n", "no_rows")
    yield DataCase("latin_1", GOOD + b'{"context":[{"role":"user","content":"caf\xe9"}]}\n', "bad_utf8")
    yield DataCase("lone_surrogate", GOOD.replace(b'"q1"', b'"\\ud83d x"'), "lone_surrogate")
    yield DataCase("whole_surrogate_pair", GOOD.replace(b'"q1"', b'"\\ud83d\\ude80 x"'))
    yield DataCase("key_twice", GOOD.replace(b'"rank":0', b'"rank":0,"rank":5'), "repeated_key")
    yield DataCase("context_twice", GOOD.replace(b'{"context"', b'{"context": [], "context"'), "repeated_key")
    yield DataCase("two_on_a_line", GOOD.replace(b"}\n{", b"}{"))
    yield DataCase("not_a_number", lines(pair(x=1.5)).replace(b"1.5", b"NaN"))
    yield DataCase("a_number_as_row", GOOD + b"5\n", "not_object")
    yield DataCase("a_list_as_row", GOOD + b"[1]\n", "not_object")
    yield DataCase("null_as_row", GOOD + b"null\n", "not_object")
    yield DataCase("array", orjson.dumps([pair(1), pair(2)]), file="rows.json")
    yield DataCase("array_in_jsonl", orjson.dumps([pair(1), pair(2)]))
    yield DataCase("one_object_over_lines", orjson.dumps(pair(1), option=orjson.OPT_INDENT_2), file="rows.json")
    yield DataCase("rows_below_a_key", lines({"data": [pair(1)]}), "missing_field", file="rows.json")
    yield DataCase("split_test", GOOD, "split", block={"split": "test"})
    yield DataCase("split_null", GOOD, block={"split": None})
    yield DataCase("subset", GOOD, "subset", block={"subset": "x"})


def _pairs() -> Iterator[DataCase]:
    """Cases O12 to O24: rows of `PreferenceDataset`."""
    yield DataCase("task_name", lines(pair(task_name="x")), "task_name")
    yield DataCase("tie", lines(pair(), ranks(0, 0)), "tie")
    yield DataCase("ranks_2_1", lines(ranks(2, 1)))
    yield DataCase("text_ranks", lines(ranks("0", "1")))
    yield DataCase("number_and_text_ranks", lines(pair(), ranks("0", "1")), "mixed_types", newer="")
    yield DataCase("fractional_rank", lines(pair(), ranks(0, 0.5)))
    yield DataCase("null_rank", lines(ranks(None, 1)), "bad_rank")
    yield DataCase("no_rank", lines(pair(2), pair(completions__0__rank=...)), "bad_rank")
    yield DataCase("no_context", lines(pair(), pair(context=...)), "missing_field")
    yield DataCase("null_context", lines(pair(), pair(context=None)), "missing_field")
    yield DataCase("text_context", lines(pair(context="hello")), "bad_messages")
    yield DataCase("empty_context", lines(pair(context=[])))
    yield DataCase("content_parts", lines(pair(context__0__content=[{"type": "text", "text": "z"}])), "content_parts")
    yield DataCase("null_text", lines(pair(context__0__content=None)), "null_text")
    yield DataCase("number_text", lines(pair(context__0__content=5)), "not_text")
    yield DataCase("no_content", lines(pair(2), pair(context__0__content=...)), "missing_field")
    yield DataCase("no_role", lines(pair(2), pair(context__0__role=...)), "bad_messages")
    yield DataCase("null_role", lines(pair(2), pair(context__0__role=None)), "bad_messages")
    yield DataCase(
        "text_completion", lines(pair(completions__0__completion="a", completions__1__completion="b")), "bad_messages"
    )
    yield DataCase("object_context", lines(pair(context={"role": "user", "content": "a"})), "bad_messages")
    yield DataCase("empty_text", lines(pair(context__0__content="")))
    yield DataCase("empty_completion", lines(pair(completions__0__completion=[]), pair(2)))
    yield DataCase("three_completions", lines(pair(completions=[*pair()["completions"]] * 2)), "wrong_count")
    yield DataCase("one_completion", lines(pair(completions__1=...)), "wrong_count")
    yield DataCase("null_completions", lines(pair(2), pair(completions=None)), "missing_field")
    yield DataCase("empty_object", lines(pair(), {}), "missing_field")
    yield DataCase("extra_key", lines(pair(pair_id="a"), pair(2, pair_id="b")))
    yield DataCase("extra_key_of_two_kinds", lines(pair(pair_id="a"), pair(2, pair_id=1)), "mixed_types", newer="")
    yield DataCase("extra_key_sometimes_null", lines(pair(pair_id="a"), pair(2, pair_id=None)))
    yield DataCase("whole_and_fractional", lines(pair(n=1), pair(n=1.5)))
    yield DataCase("dates", lines(*(pair(context__0__content=f"2024-01-0{n}") for n in (1, 2))), "all_dates")
    yield DataCase("times", lines(*(pair(context__0__content=f"2024-01-0{n} 10:00:00") for n in (1, 2))), "all_dates")
    yield DataCase("dates_on_one_side", lines(*(pair(completions__0__completion__0__content="2024-01-01"), pair(2))))
    yield DataCase("one_too_long", lines(pair(), pair(context__0__content=LONG)), masked=1)


def _binary() -> Iterator[DataCase]:
    yield DataCase("binary", lines(binary(), binary()), block=_BINARY)
    yield DataCase("binary_messages", lines(binary(prompt=pair()["context"])), block=_BINARY)
    yield DataCase("binary_null", lines(binary(), binary(chosen=None)), "null_text", block=_BINARY)
    yield DataCase("binary_missing", lines(binary(), binary(chosen=...)), "missing_field", block=_BINARY)
    yield DataCase("binary_no_column", lines(binary(chosen=...)), "missing_field", block=_BINARY)
    yield DataCase("binary_number", lines(binary(chosen=5, rejected=6)), "not_text", block=_BINARY)
    yield DataCase("binary_task_name", lines(binary(task_name="x")), block=_BINARY)
    yield DataCase("binary_csv", b"prompt,chosen,rejected\nq,a,b\n", file="rows.csv", block=_BINARY)
    yield DataCase(
        "binary_csv_hole", b"prompt,chosen,rejected\nq,,b\nq,a,b\n", "null_text", None, "dpo", "rows.csv", _BINARY
    )
    yield DataCase(
        "binary_csv_number", b"prompt,chosen,rejected\nq,1,2\n", "not_text", None, "dpo", "rows.csv", _BINARY
    )
    yield DataCase("binary_txt", b"hello\n", "missing_field", file="rows.txt", block=_BINARY)
    keys = {**_BINARY, "prompt_key": "p", "chosen_key": "c", "rejected_key": "r"}
    yield DataCase("binary_other_keys", lines({"p": "q", "c": "a", "r": "b"}), block=keys)


def _chats() -> Iterator[DataCase]:
    talk = chat("user", "assistant")
    yield DataCase("chat", lines(talk), algo="sft")
    yield DataCase(
        "chat_ends_with_user", lines(talk, chat("user", "assistant", "user")), "last_not_assistant", algo="sft"
    )
    yield DataCase("chat_task_name", lines({**talk, "task_name": "x"}), algo="sft")
    yield DataCase("chat_empty", lines(talk, {"messages": []}), "bad_messages", algo="sft")
    yield DataCase("chat_null", lines(talk, {"messages": None}), "missing_field", algo="sft")
    yield DataCase("chat_no_messages", lines({"x": 1}), "missing_field", algo="sft")
    yield DataCase(
        "chat_null_text", lines(talk, changed(talk, {"messages__1__content": None})), "null_text", algo="sft"
    )
    yield DataCase("chat_packed", gzip.compress(lines(talk)), algo="sft", file="rows.jsonl.gz")
    yield DataCase("chat_capitals", lines(talk), algo="sft", file="ROWS.JSONL")
    yield DataCase("chat_default_processor", lines(talk), "processor", algo="sft", block={"processor": "default"})
    yield DataCase("chat_other_key", lines({"talk": talk["messages"]}), algo="sft", block={"chat_key": "talk"})
    yield DataCase("chat_wrong_key", lines(talk), "missing_field", algo="sft", block={"chat_key": "talk"})
    yield DataCase("chat_system", lines({**talk, "sys": "be"}), algo="sft", block={"system_key": "sys"})
    yield DataCase(
        "chat_system_hole", lines({**talk, "sys": "be"}, talk), "missing_field", algo="sft", block={"system_key": "sys"}
    )
    yield DataCase("response", lines(question()), algo="sft", block=_RESPONSE)
    yield DataCase("response_number", lines(question(output=5)), "not_text", algo="sft", block=_RESPONSE)
    yield DataCase("response_messages", lines(talk), algo="sft", block=_RESPONSE)
    yield DataCase("response_task_name", lines({**talk, "task_name": "x"}), "task_name", algo="sft", block=_RESPONSE)
    long = changed(talk, {"messages__0__content": LONG})
    yield DataCase("chat_one_too_long", lines(talk, long), algo="sft", masked=1)


def _questions() -> Iterator[DataCase]:
    yield DataCase("question", lines(question(), question()), algo="grpo")
    yield DataCase("question_number", lines(question(output=5)), "not_text", newer="", algo="grpo")
    yield DataCase("question_null_output", lines(question(), question(output=None)), algo="grpo")
    yield DataCase("question_no_output", lines(question(output=...)), "missing_field", algo="grpo")
    yield DataCase("question_null_input", lines(question(), question(input=None)), "null_text", algo="grpo")
    yield DataCase("question_dates", lines(question(output="2024-01-01")), "all_dates", algo="grpo")
    yield DataCase("question_messages", lines(chat("user", "assistant")), algo="grpo")
    yield DataCase("question_one_message", lines(chat("user")), "bad_messages", algo="grpo")
    yield DataCase("question_csv", b"input,output\nq,a\n", algo="grpo", file="rows.csv")
    yield DataCase("question_task_name", lines(question(task_name="x")), algo="grpo")
    yield DataCase(
        "question_other_processor",
        lines(question()),
        "processor",
        algo="grpo",
        block={"processor": "math_data_processor"},
    )
    yield DataCase(
        "question_unknown_processor", lines(question()), "processor", algo="grpo", block={"processor": "nope"}
    )
    yield DataCase(
        "question_split", lines(*(question(input=str(n)) for n in range(10))), algo="grpo",
        block={"split_validation_size": 0.2, "seed": 1},
    )  # fmt: skip
    yield DataCase(
        "question_split_all", lines(question()), "split_validation_size", algo="grpo",
        block={"split_validation_size": 0.5, "seed": 1},
    )  # fmt: skip
    yield DataCase("question_one_too_long", lines(question(), question(input=LONG)), algo="grpo", masked=1)


CASES = [*_files(), *_pairs(), *_binary(), *_chats(), *_questions()]


@dataclass(frozen=True)
class Looked:
    """What the preflight says about the data sets of a case, and nothing else."""

    scans: list[Scan]
    findings: list[Finding]
    rows: list[SetRows]

    @property
    def refused(self) -> list[str]:
        return [finding.code for finding in self.findings if finding.level is Level.REFUSE]


def looked_at(case: Case, limit: int | None = None) -> Looked:
    """Read the data sets of a case. limit: tokens of a row; None counts no lengths."""
    blocks, findings = data_blocks(case)
    rules = LoaderRules.of(case)
    scans = [scan(block, case, rules, limit) for block in blocks if block.file]
    for found in scans:
        findings += findings_of(found, rules)
    findings += check_processors(case, blocks)
    findings += plan_steps(case, scans, True).findings
    if limit is None:
        return Looked(scans, findings, [lengths.rows_of(found, None) for found in scans])
    measured, problems = lengths.measure(case, scans, limit, None)
    rows = [lengths.rows_of(found, length) for found, length in zip(scans, measured, strict=True)]
    return Looked(scans, findings + problems, rows)
