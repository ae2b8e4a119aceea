"""NeMo-RL's own run_grpo.py below our driver: its answers are scored by our rewards and by a reward model, in its Ray.

vLLM alone is replaced (`generation_hook`); a refit still asks each worker for its free memory.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl import get_run, launch_run
from nvtrader_rl_dagster.nemo_rl.backends import PYTHON_VARIABLE, SOURCE_VARIABLE
from nvtrader_rl_dagster.nemo_rl.checkpoints import complete_checkpoints
from nvtrader_rl_dagster.nemo_rl.configs import BUILDERS, OPTIONS, Target
from nvtrader_rl_dagster.nemo_rl.environment import PATH_VARIABLE
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunState, RunStore
from nvtrader_rl_dagster.rewards import find_reward
from tests.contract.rows import data_for
from tests.contract.test_driver import HERE, OWN_CODE
from tests.contract.test_real_training import ended, nothing_left
from tests.contract.trees import Tree

pytestmark = pytest.mark.slow
ANSWER = "<|im_start|>assistant\n"


@pytest.fixture
def place(home: Path, tree: Tree, nemo_rl_python: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv(SOURCE_VARIABLE, str(tree.folder))
    monkeypatch.setenv(PYTHON_VARIABLE, str(nemo_rl_python))
    monkeypatch.setenv(PATH_VARIABLE, os.pathsep.join([str(HERE / "generation_hook"), str(OWN_CODE)]))
    monkeypatch.syspath_prepend(OWN_CODE)
    return Home(home)


@pytest.fixture(scope="session")
def reward_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scorer with random weights, exported as ours are."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = tmp_path_factory.mktemp("reward_model")
    torch.manual_seed(1)
    model = AutoModelForSequenceClassification.from_pretrained(tiny_model, num_labels=1, dtype=torch.float32)
    torch.nn.init.normal_(model.score.weight, std=0.05)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(folder)
    return folder


def start(algo: str, place: Home, tree: Tree, model: Path, **options: Any) -> RunDirectory:
    """Two steps of two prompts with four answers each."""
    built = BUILDERS[algo](
        OPTIONS[algo](
            base_model=str(model),
            max_sequence_tokens=160,
            max_new_tokens=24,
            prompts_per_step=2,
            generations_per_prompt=4,
            max_steps=2,
            save_period=2,
            **options,
        ),
        data_for(algo, place.root / "data"),
        place.root / "unused",
        place.root / "unused",
        Target(version=tree.version, precision="float32"),
    )
    config = built.config
    del config["checkpointing"]["checkpoint_dir"], config["logger"]["log_dir"]
    return RunStore(place.runs).get(launch_run(algo, config, backend="nemo_rl").run_id)


def samples(directory: RunDirectory) -> list[tuple[str, str, float]]:
    """Question, answer and reward of everything that was trained on, from NeMo-RL's own files."""
    found = []
    for file in sorted(directory.path.glob("logs/exp_*/train_data_step*.jsonl")):
        for line in file.read_bytes().splitlines():
            row = {name: value[0] if isinstance(value, list) else value for name, value in orjson.loads(line).items()}
            content = "".join(row["content"]) if isinstance(row["content"], list) else row["content"]
            shown, _, answer = content.rpartition(ANSWER)
            question = shown.split("user\n")[-1].split("<|im_end|>")[0].strip()
            found.append((question, answer, float(row["rewards"])))
    return found


def test_answers_get_the_weighted_mean_of_the_rewards_that_were_configured(
    place: Home, tree: Tree, tiny_model: Path
) -> None:
    weights = {"length_sane": 1.0, "desk.even_letters": 2.0, "desk.tells_the_topic": 1.0}
    directory = start("grpo", place, tree, tiny_model, rewards=weights)
    assert ended(directory) is RunState.SUCCEEDED, get_run(directory.run_id).failure
    scored = samples(directory)
    assert len(scored) == 16
    for question, answer, reward in scored:
        prompt = [{"role": "user", "content": question}]
        truth = '{"facts":["2 percent"]}'
        expected = sum(w * find_reward(n)(prompt, answer, truth) for n, w in weights.items()) / sum(weights.values())
        assert reward == pytest.approx(expected, abs=1e-5), answer
    assert len({reward for _, _, reward in scored}) > 8, "they vary"
    log = directory.log.read_text(encoding="utf-8")
    assert "NVML cannot report the free memory of device 0" in log, "each refit asks the worker"
    assert [checkpoint.step for checkpoint in complete_checkpoints(directory.checkpoints)] == [2]
    assert nothing_left(place)


def test_gdpo_keeps_rewards_apart_and_one_of_them_may_be_a_reward_model(
    place: Home, tree: Tree, tiny_model: Path, reward_model: Path
) -> None:
    sys.modules.pop("desk", None)
    options = {"rewards": {"desk.even_letters": 1.0, "reward_model": 1.0}, "reward_model": str(reward_model)}
    directory = start("gdpo", place, tree, tiny_model, **options)
    assert ended(directory) is RunState.SUCCEEDED, get_run(directory.run_id).failure
    scored = samples(directory)
    expected = scores_one_by_one(reward_model, [(question, answer) for question, answer, _ in scored])
    for (question, answer, total), score in zip(scored, expected, strict=True):
        assert total == pytest.approx(find_reward("desk.even_letters")([], answer, "") + score, abs=1e-3), question
    assert len({round(score, 4) for score in expected}) > 8
    assert nothing_left(place)


def scores_one_by_one(folder: Path, pairs: list[tuple[str, str]]) -> list[float]:
    """The reward model on each conversation alone: no padding, and the last token found by hand."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1, dtype=torch.float32).eval()
    found = []
    for question, answer in pairs:
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        if tokenizer.bos_token and not text.startswith(tokenizer.bos_token):
            text = tokenizer.bos_token + text
        ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
        with torch.no_grad():
            state = model.model(ids).last_hidden_state[0, -1]
            found.append(float(torch.sigmoid(model.score(state))))
    return found
