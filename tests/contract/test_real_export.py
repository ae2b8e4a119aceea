"""Checkpoints that NeMo-RL's own code saved, through its own converter, to a folder that everybody loads."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from typer.testing import CliRunner

from nvtrader_rl_dagster.cli import app
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.backends import PYTHON_VARIABLE, SOURCE_VARIABLE, embedded_trainer
from nvtrader_rl_dagster.nemo_rl.checkpoints import Checkpoint, complete_checkpoints
from nvtrader_rl_dagster.nemo_rl.runs import RunStore
from tests.contract.trees import Tree

pytestmark = pytest.mark.slow
MAKER = Path(__file__).parent / "checkpoint_maker.py"
REWARD_MODEL = {"enabled": True, "reward_model_type": "bradley_terry"}


class Place:
    """A state folder with one run, whose checkpoints NeMo-RL's writers make."""

    def __init__(self, home: Home, tree: Tree, python: Path, base: Path) -> None:
        self.run = RunStore(home.runs).create("dpo", "nemo_rl")
        self.tree, self.python, self.base = tree, python, base

    def saved(self, **policy: Any) -> tuple[Checkpoint, dict[str, torch.Tensor]]:
        """A checkpoint as the v1 worker saves it, and the weights that its export must hold."""
        step = self.run.checkpoints / "step_2"
        step.mkdir(parents=True)
        (step / "training_info.json").write_text(json.dumps({"total_steps": 2}))
        policy = {"model_name": str(self.base), "tokenizer": {"name": str(self.base)}, **policy}
        (step / "config.yaml").write_text(yaml.safe_dump({"policy": policy}))
        maker = [str(self.python), str(MAKER), "dcp", str(self.base), str(step)]
        made = subprocess.run(maker, cwd=self.tree.folder, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout + made.stderr
        expected = torch.load(step / "expected.pt", weights_only=True)
        (checkpoint,) = complete_checkpoints(self.run.checkpoints)
        checkpoint.write_manifest(checkpoint.describe())
        return checkpoint, expected

    def export(self, code: int = 0) -> str:
        """What the console script says."""
        result = CliRunner().invoke(app, ["checkpoints", "export", self.run.run_id])
        assert result.exit_code == code, result.output
        return " ".join(result.output.split())


@pytest.fixture
def place(home: Path, tree: Tree, nemo_rl_python: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv(SOURCE_VARIABLE, str(tree.folder))
    monkeypatch.setenv(PYTHON_VARIABLE, str(nemo_rl_python))
    return Place(Home(home), tree, nemo_rl_python, tiny_model)


def loaded(model_class: Any, checkpoint: Checkpoint, expected: dict[str, torch.Tensor]) -> Any:
    """The exported model as a user loads it; nothing is missing or new, and every weight is the trained one."""
    model, info = model_class.from_pretrained(checkpoint.huggingface, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    state = model.state_dict()
    assert state.keys() == expected.keys()
    assert [name for name, tensor in expected.items() if not torch.equal(tensor, state[name])] == []
    return model


def test_a_v1_checkpoint_becomes_a_model_with_the_tokenizer_that_it_was_trained_with(place: Place) -> None:
    checkpoint, expected = place.saved(hf_config_overrides={"max_position_embeddings": 128})
    assert "weights_compared" in place.export()
    model = loaded(AutoModelForCausalLM, checkpoint, expected)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.config.max_position_embeddings == 128
    assert AutoTokenizer.from_pretrained(checkpoint.huggingface).chat_template.endswith("of the checkpoint")
    assert checkpoint.manifest["weights_sha256"] == checkpoint.weights_sha256()
    assert checkpoint.manifest["export"]["architecture"] == "LlamaForCausalLM"
    scorer = embedded_trainer(["check", str(checkpoint.huggingface)])
    checked = subprocess.run(scorer, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["loss"] == pytest.approx(checkpoint.manifest["export"]["loss"], rel=1e-3)


def test_a_reward_model_keeps_its_trained_head(place: Place) -> None:
    checkpoint, expected = place.saved(reward_model_cfg=REWARD_MODEL)
    place.export()
    model = loaded(AutoModelForSequenceClassification, checkpoint, expected)
    assert model.config.num_labels == 1 and model.score.weight.shape[0] == 1
    assert len(checkpoint.manifest["export"]["scores"]) == 2


def test_a_truncated_shard_exports_nothing_and_changes_nothing(place: Place) -> None:
    checkpoint, _ = place.saved()
    shard = checkpoint.path / "policy/weights/__0_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-5000])
    checkpoint.write_manifest(checkpoint.describe())
    before = sorted(checkpoint.path.rglob("*")), checkpoint.manifest
    assert "could not be exported" in place.export(code=1)
    assert (sorted(checkpoint.path.rglob("*")), checkpoint.manifest) == before
