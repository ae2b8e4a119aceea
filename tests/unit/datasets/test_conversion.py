"""From pairs to the rows that trainers read: nothing lost, nothing changed, sides kept apart."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvtrader_rl_dagster.datasets.convert import convert_pairs
from nvtrader_rl_dagster.datasets.shapes import SHAPES, helpsteer3_row, nemo_rank_row, trl_row
from nvtrader_rl_dagster.datasets.split import split_of

WILD = 'NVDA ▲ +3.2 % — €1.2bn, 買い, عربي, 👩🏽‍💻 e\u0301 \u2028 "q" \\n'


def pair(number: int, prompt: str = "", text: str = "", weight: float = 1.0) -> dict:
    question = prompt or f"question {number}"
    return {
        "pair_id": hashlib.sha256(f"{number}".encode()).hexdigest()[:32],
        "prompt": [{"role": "user", "content": question}],
        "chosen": [{"role": "assistant", "content": f"good {number}{text}"}],
        "rejected": [{"role": "assistant", "content": f"bad {number}{text}"}],
        "weight": weight,
        "seqs": [number],
        "prompt_hash": hashlib.sha256(question.encode()).hexdigest(),
        "origin": "preference",
    }


def write(path: Path, pairs: list[dict]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(p) + b"\n" for p in pairs))
    return path


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_every_pair_lands_on_exactly_one_side_and_can_be_traced(shape: str, tmp_path: Path) -> None:
    pairs = [pair(n, prompt=f"p{n // 3}") for n in range(300)]
    result = convert_pairs(write(tmp_path / "pairs.jsonl", pairs), tmp_path, SHAPES[shape])
    train, validation = rows(tmp_path / "train.jsonl"), rows(tmp_path / "validation.jsonl")
    assert (len(train), len(validation)) == (result.train, result.validation)
    assert result.train > 0 and result.validation > 0 and result.pairs == 300
    assert {r["pair_id"] for r in train} | {r["pair_id"] for r in validation} == {p["pair_id"] for p in pairs}
    assert not {r["pair_id"] for r in train} & {r["pair_id"] for r in validation}


def test_pairs_of_one_prompt_stay_on_one_side(tmp_path: Path) -> None:
    pairs = [pair(n, prompt=f"p{n // 4}") for n in range(400)]
    result = convert_pairs(write(tmp_path / "pairs.jsonl", pairs), tmp_path, trl_row)
    prompts = {
        side: {r["prompt"][0]["content"] for r in rows(tmp_path / f"{side}.jsonl")} for side in ("train", "validation")
    }
    assert not prompts["train"] & prompts["validation"]
    assert (result.train_prompts, result.validation_prompts) == (
        len(prompts["train"]),
        len(prompts["validation"]),
    )


@given(st.integers(0, 2**256 - 1), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_fraction_only_adds_prompts_to_validation(number: int, a: float, b: float) -> None:
    digest = f"{number:064x}"
    small, large = sorted((a, b))
    if split_of(digest, small) == "validation":
        assert split_of(digest, large) == "validation"


def test_about_the_asked_share_of_prompts_is_held_out() -> None:
    digests = [hashlib.sha256(str(n).encode()).hexdigest() for n in range(20_000)]
    share = sum(split_of(d, 0.2) == "validation" for d in digests) / len(digests)
    assert 0.19 < share < 0.21


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_text_is_byte_identical_in_every_shape(text: str) -> None:
    source = pair(1, text=text)
    for shape in SHAPES.values():
        row = orjson.loads(orjson.dumps(shape(source)))
        found = json.dumps(row, ensure_ascii=False)
        assert json.dumps("good 1" + text, ensure_ascii=False)[1:-1] in found
        assert json.dumps("bad 1" + text, ensure_ascii=False)[1:-1] in found


def test_wild_text_survives_on_disk(tmp_path: Path) -> None:
    convert_pairs(write(tmp_path / "p.jsonl", [pair(1, text=WILD)]), tmp_path, trl_row)
    (row,) = [json.loads(x) for side in ("train", "validation") for x in (tmp_path / f"{side}.jsonl").open("rb")]
    assert row["chosen"][0]["content"] == "good 1" + WILD


def test_the_rank_row_has_what_nemo_rl_reads_and_no_task_name() -> None:
    row = nemo_rank_row(pair(7))
    assert set(row) == {"context", "completions", "pair_id"}
    assert [c["rank"] for c in row["completions"]] == [0, 1]
    assert row["completions"][0]["completion"][0]["content"] == "good 7"


def test_helpsteer3_position_says_nothing_about_the_preference() -> None:
    made = [helpsteer3_row(pair(n)) for n in range(1000)]
    firsts = 0
    for row in made:
        assert row is not None
        chosen = row["response1"] if row["overall_preference"] < 0 else row["response2"]
        assert chosen.startswith("good") and abs(row["overall_preference"]) == 2
        firsts += row["overall_preference"] < 0
    assert 430 < firsts < 570


def test_a_split_vote_is_a_slight_preference() -> None:
    row = helpsteer3_row(pair(3, weight=2 / 3))
    assert row is not None and abs(row["overall_preference"]) == 1


def test_a_completion_of_several_messages_is_counted_not_bent(tmp_path: Path) -> None:
    several = pair(1)
    several["chosen"] = [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "quote", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "7"},
        {"role": "assistant", "content": "7"},
    ]
    result = convert_pairs(write(tmp_path / "p.jsonl", [several, pair(2)]), tmp_path, helpsteer3_row)
    assert (result.not_expressible, result.pairs) == (1, 2)


def test_tool_calls_stay_in_their_own_row(tmp_path: Path) -> None:
    with_tools = pair(1)
    with_tools["prompt"] = [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "f", "arguments": '{"t": 1}'}}],
        },
        {"role": "tool", "content": "1"},
    ]
    convert_pairs(write(tmp_path / "p.jsonl", [with_tools, pair(2)]), tmp_path, nemo_rank_row)
    text = (tmp_path / "train.jsonl").read_text() + (tmp_path / "validation.jsonl").read_text()
    assert text.count("tool_calls") == 1 and "null" not in text


def test_a_broken_pairs_file_names_file_line_and_remedy(tmp_path: Path) -> None:
    file = write(tmp_path / "pairs.jsonl", [pair(1)])
    file.write_bytes(file.read_bytes() + b'{"pair_id": "x"\n')
    with pytest.raises(ValueError, match=r"pairs\.jsonl:2: .*materialize preference_pairs again"):
        convert_pairs(file, tmp_path, trl_row)
