"""Contract tests run NeMo-RL's own code; without it they are skipped and say what is missing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import orjson
import pytest

from nvtrader_rl_dagster.nemo_rl.backends import embedded_trainer
from tests.contract.trees import Tree, interpreter, trees, why_not


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    reason = why_not()
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.contract)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "tree" in metafunc.fixturenames:
        found = trees() or [Tree(Path("no-checkout"))]
        metafunc.parametrize("tree", found, ids=str, scope="session")


@pytest.fixture(scope="session")
def nemo_rl_python(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return interpreter(tree, tmp_path_factory.mktemp("nemo_rl"))


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of a million parameters with a chat template, as a Hugging Face folder."""
    home = tmp_path_factory.mktemp("tiny")
    done = subprocess.run(
        embedded_trainer(["model", "builtin:tiny"]),
        env={**os.environ, "NVTRADER_RL_HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(orjson.loads(done.stdout.splitlines()[-1])["path"])
