"""The format of a checkpoint's weights is told from its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from nvtrader_rl_dagster.nemo_rl.checkpoints import Checkpoint, complete_checkpoints
from nvtrader_rl_dagster.nemo_rl.export.formats import WeightFormat, megatron_iteration, recognise

CONSOLIDATED = ["model/consolidated/config.json", "model/consolidated/model.safetensors"]
SHARDS = ["model/shard-00001-model-00001-of-00001.safetensors", "model/.hf_metadata/config.json"]
ADAPTER = ["model/adapter_model.safetensors", "model/adapter_config.json", "model/automodel_peft_config.json"]
MEGATRON = ["iter_0000000/.metadata", "iter_0000000/__0_0.distcp", "iter_0000000/run_config.yaml"]


def write(folder: Path, files: list[str]) -> None:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([".metadata", "__0_0.distcp"], WeightFormat.DCP),
        (["model/.metadata", "model/__0_0.distcp"], WeightFormat.DCP),
        (SHARDS, WeightFormat.SAFETENSORS),
        ([*SHARDS, *CONSOLIDATED], WeightFormat.CONSOLIDATED),
        ([*CONSOLIDATED, "model/consolidated/tokenizer.json"], WeightFormat.HUGGINGFACE),
        (ADAPTER, WeightFormat.LORA),
        (MEGATRON, WeightFormat.MEGATRON),
        (["__0_0.distcp"], WeightFormat.UNKNOWN),
        ([], WeightFormat.UNKNOWN),
    ],
)
def test_each_format_is_recognised(files: list[str], expected: WeightFormat, tmp_path: Path) -> None:
    write(tmp_path, files)
    assert recognise(tmp_path) is expected


def test_a_folder_that_is_not_there_has_no_format(tmp_path: Path) -> None:
    assert recognise(tmp_path / "none") is WeightFormat.UNKNOWN


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model: !!python/object:x {}\npeft:\n  dim: 8\n", WeightFormat.MEGATRON_LORA),
        ("model: {}\npeft: null\n", WeightFormat.MEGATRON),
        ("model: {}\n", WeightFormat.MEGATRON),
    ],
)
def test_megatrons_notes_tell_an_adapter_from_a_whole_model(text: str, expected: WeightFormat, tmp_path: Path) -> None:
    write(tmp_path, MEGATRON)
    (tmp_path / "iter_0000000/run_config.yaml").write_text(text)
    assert recognise(tmp_path) is expected


def test_the_newest_iteration_of_megatron_is_found_by_number(tmp_path: Path) -> None:
    for name in ("iter_0000009", "iter_0000010", "iter_x"):
        (tmp_path / name).mkdir()
    assert megatron_iteration(tmp_path) == tmp_path / "iter_0000010"


def saved(tmp_path: Path, files: list[str]) -> Checkpoint:
    write(tmp_path / "step_2/policy/weights", files)
    (tmp_path / "step_2/training_info.json").write_text("{}")
    (checkpoint,) = complete_checkpoints(tmp_path)
    return checkpoint


def test_an_export_is_the_hugging_face_folder_and_the_identity_of_the_model(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path, [".metadata", "__0_0.distcp"])
    shards = checkpoint.weights_sha256()
    write(checkpoint.path / "hf", ["config.json", "tokenizer.json"])
    (checkpoint.path / "hf/model.safetensors").write_bytes(b"exported")
    assert checkpoint.huggingface == checkpoint.path / "hf" and checkpoint.format is WeightFormat.DCP
    exported = checkpoint.weights_sha256()
    (checkpoint.path / "policy/weights/__0_0.distcp").write_bytes(b"other")
    assert exported != shards and checkpoint.weights_sha256() == exported
    (checkpoint.path / "hf/model.safetensors").write_bytes(b"changed")
    assert checkpoint.weights_sha256() != exported
    assert checkpoint.describe()["huggingface"] == "hf" and checkpoint.describe()["format"] == "dcp"


def test_consolidated_weights_without_a_tokenizer_are_no_hugging_face_folder(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path, CONSOLIDATED)
    with pytest.raises(FileNotFoundError, match=r"no Hugging Face weights .*consolidated.* checkpoints export"):
        _ = checkpoint.huggingface
