"""The preflight's verdict on a data file is that of NeMo-RL's own loaders and processors."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS
from nvtrader_rl_dagster.nemo_rl.backends import Trainer
from nvtrader_rl_dagster.nemo_rl.env_probe import Interpreter, look_into_interpreter
from nvtrader_rl_dagster.nemo_rl.preflight.case import Case
from nvtrader_rl_dagster.nemo_rl.preflight.settings import Settings
from tests.contract.trees import Tree
from tests.preflight_cases import CASES, LIMIT, DataCase, looked_at

_ORACLE = Path(__file__).with_name("loader_oracle.py")


@dataclass(frozen=True)
class Loaders:
    """What NeMo-RL said to each file, and how to ask the preflight about it."""

    outcomes: dict[str, Any]
    data: dict[str, dict[str, Any]]
    trainer: Trainer
    environment: dict[str, str]
    interpreter: Interpreter
    tokenizer: Path
    version: str

    def case(self, data: DataCase) -> Case:
        config = {"data": self.data[data.name], "policy": {"tokenizer": {"name": str(self.tokenizer)}}}
        return Case(ALGOS[data.algo], Settings(config), self.trainer, self.version, self.environment, self.interpreter)


@pytest.fixture(scope="session")
def loaders(tree: Tree, nemo_rl_python: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Loaders:
    folder = tmp_path_factory.mktemp("cases")
    trainer = Trainer("nemo_rl", "for a test", str(nemo_rl_python), tree.folder)
    data = {case.name: case.data(folder) for case in CASES}
    task = {
        "source": str(tree.folder),
        "tokenizer": str(tiny_model),
        "cases": [{"name": case.name, "algo": case.algo, "data": data[case.name]} for case in CASES],
    }
    environment = trainer.environment(1)
    done = subprocess.run(
        [str(nemo_rl_python), str(_ORACLE)],
        input=json.dumps(task),
        cwd=tree.folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = json.loads(done.stdout.splitlines()[-1])
    interpreter = look_into_interpreter(trainer.python, environment)
    return Loaders(outcomes, data, trainer, environment, interpreter, tiny_model, tree.version)


@pytest.mark.parametrize("data", CASES, ids=lambda case: case.name)
def test_the_verdict_on_a_file_is_nemo_rl_s_own(loaders: Loaders, data: DataCase) -> None:
    theirs = loaders.outcomes[data.name]
    newer = data.newer is not None and loaders.interpreter.version("datasets") >= (4, 7)
    expected = data.newer if newer else data.refused
    ours = looked_at(loaders.case(data), LIMIT)
    assert isinstance(theirs, str) == bool(expected), theirs
    assert ours.refused == ([expected] if expected else []), theirs
    if not expected:
        (train,) = ours.rows
        held_out = round(data.block.get("split_validation_size", 0) * train.rows)
        assert [train.rows - held_out, train.too_long] == theirs == [theirs[0], data.masked]
