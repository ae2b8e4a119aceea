"""Every generated YAML goes through the loaders, the types, the data sets and the processors of the real NeMo-RL."""

from __future__ import annotations

import math
import os
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS, DataShape
from nvtrader_rl_dagster.nemo_rl.configs import BUILDERS, OPTIONS, Target
from tests.contract.rows import data_for
from tests.contract.trees import Tree

PROBE = Path(__file__).with_name("probe.py")


@pytest.fixture(scope="session")
def answers(nemo_rl_python: Path, tree: Tree, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the tree says about the YAML of an algorithm; asked once."""
    known: dict[str, dict[str, Any]] = {}

    def ask(algo: str) -> dict[str, Any]:
        if algo not in known:
            known[algo] = _ask(algo, tree, nemo_rl_python, tiny_model, tmp_path_factory.mktemp(algo))
        return known[algo]

    return ask


def _ask(algo: str, tree: Tree, python: Path, model: Path, folder: Path) -> dict[str, Any]:
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config_for(algo, tree, model, folder), sort_keys=False))
    done = subprocess.run(
        [str(python), str(PROBE), str(file)],
        cwd=tree.folder,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    assert said, f"{algo}: {done.stdout[-1500:]}\n{done.stderr[-3000:]}"
    answer: dict[str, Any] = orjson.loads(said[-1].removeprefix("ANSWER "))
    return answer


def config_for(algo: str, tree: Tree, model: Path, folder: Path) -> dict[str, Any]:
    names = {"base_model": str(model), "max_sequence_tokens": 256, "max_new_tokens": 64}
    if algo == "distillation":
        names["teacher_model"] = str(model)
    options = OPTIONS[algo](**{key: value for key, value in names.items() if key in OPTIONS[algo].model_fields})
    built = BUILDERS[algo](
        options, data_for(algo, folder), folder / "checkpoints", folder / "logs", Target(version=tree.version)
    )
    config: dict[str, Any] = built.config
    return config


@pytest.mark.parametrize("algo", ALGOS)
def test_the_types_of_the_tree_find_nothing_missing_and_nothing_of_the_wrong_type(algo: str, answers: Any) -> None:
    assert answers(algo)["missing"] == []


@pytest.mark.parametrize("algo", ALGOS)
def test_its_own_loaders_find_every_row_and_every_row_counts(algo: str, answers: Any) -> None:
    sets = answers(algo)["sets"]
    if ALGOS[algo].data is DataShape.BENCHMARK:
        assert sets == {"eval": {"rows": 8, "live": 8}}
        return
    train = {name: rows for name, rows in sets.items() if name.startswith("train")}
    held_out = {name: rows for name, rows in sets.items() if name.startswith("validation")}
    assert list(train.values()) == [{"rows": 8, "live": 8}]
    assert list(held_out.values()) == [{"rows": 2, "live": 2}]


@pytest.mark.parametrize("algo", [name for name, known in ALGOS.items() if known.data is not DataShape.BENCHMARK])
def test_two_rows_make_a_batch(algo: str, answers: Any) -> None:
    sequences = 4 if ALGOS[algo].data is DataShape.PREFERENCE else 2
    assert answers(algo)["batch"][0] == sequences


def test_a_conversation_keeps_its_question_out_of_the_loss_and_its_answer_in(answers: Any) -> None:
    roles = [role for role, tokens in answers("sft")["tokens"] if tokens]
    assert roles == ["user", "assistant"]


@pytest.mark.parametrize("algo", [name for name, known in ALGOS.items() if known.data is DataShape.PROMPTS])
def test_a_prompt_ends_where_the_policy_is_to_write(algo: str, answers: Any) -> None:
    assert [role for role, _ in answers(algo)["tokens"]] == ["user"]


def test_the_dpo_loss_of_equal_policies_is_ln_2(answers: Any) -> None:
    assert answers("dpo")["equal_policies"] == pytest.approx(math.log(2), abs=1e-6)
