"""Complete configurations, a NeMo-RL tree and a model folder to look at: the helper of the preflight tests."""

from __future__ import annotations

import copy
import json
import struct
import sys
from pathlib import Path
from typing import Any

import orjson

from nvtrader_rl_dagster.nemo_rl.algorithms import ALGOS
from nvtrader_rl_dagster.nemo_rl.backends import Trainer
from nvtrader_rl_dagster.nemo_rl.env_probe import Interpreter
from nvtrader_rl_dagster.nemo_rl.preflight.case import Case, Start
from nvtrader_rl_dagster.nemo_rl.preflight.check import preflight
from nvtrader_rl_dagster.nemo_rl.preflight.report import Level, Report
from nvtrader_rl_dagster.nemo_rl.preflight.settings import Settings
from tests.preflight_cases import chat, lines, pair, question

EMBEDDED = Trainer("local", "for a test", sys.executable)
TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"


def make_tree(folder: Path, version: str = "0.6.0") -> Path:
    """The scripts and the version file of a checkout; not its package, so that nothing is asked of an interpreter."""
    (folder / "examples").mkdir(parents=True)
    for algorithm in ALGOS.values():
        (folder / "examples" / algorithm.release(version).script).touch()
    major, minor, patch = version.split(".")
    (folder / "nemo_rl").mkdir()
    (folder / "nemo_rl" / "package_info.py").write_text(f"MAJOR = {major}\nMINOR = {minor}\nPATCH = {patch}\n")
    return folder


def nemo_rl(tree: Path) -> Trainer:
    return Trainer("nemo_rl", "for a test", sys.executable, tree)


def make_model(folder: Path, parameters: int = 1000) -> Path:
    """A model folder with every file that a loader asks for. The weights are a header and as many zeros."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 512}
    (folder / "config.json").write_text(json.dumps(config))
    write_weights(folder / "model.safetensors", parameters)
    byte_tokenizer(folder)
    return folder


def write_weights(file: Path, parameters: int, cut: int = 0) -> None:
    """A safetensors file of one tensor, sparse on disk."""
    tensor = {"w": {"dtype": "F32", "shape": [parameters], "data_offsets": [0, 4 * parameters]}}
    header = json.dumps(tensor).encode()
    with file.open("wb") as out:
        out.write(struct.pack("<Q", len(header)) + header)
        out.truncate(8 + len(header) + 4 * parameters - cut)


def byte_tokenizer(folder: Path) -> None:
    """A byte-level BPE without merges: one token for each byte."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(["<s>", "</s>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_rows(folder: Path, algo: str, rows: int = 20, held_out: int = 4) -> tuple[Path, Path]:
    """A training and a validation file in the algorithm's shape."""
    row = {"dpo": pair, "rm": pair, "sft": _talk}.get(algo, _ask)
    folder.mkdir(parents=True, exist_ok=True)
    train, validation = folder / "train.jsonl", folder / "validation.jsonl"
    train.write_bytes(lines(*(row(number) for number in range(rows))))
    validation.write_bytes(lines(*(row(1000 + number) for number in range(held_out))))
    return train, validation


def complete(folder: Path, algo: str, version: str = "0.6.0", rows: int = 20, **options: Any) -> dict[str, Any]:
    """The YAML of a run that nothing is wrong with, made by the bridge's own builder."""
    from nvtrader_rl_dagster.nemo_rl.configs import BUILDERS, OPTIONS, Target
    from nvtrader_rl_dagster.nemo_rl.configs.data import ChatData, PreferenceData, PromptData

    train, validation = write_rows(folder / "data", algo, rows)
    kind = {"dpo": PreferenceData, "rm": PreferenceData, "sft": ChatData}.get(algo, PromptData)
    named = {"base_model": str(make_model(folder / "model")), **options}
    if algo == "distillation":
        named.setdefault("teacher_model", str(folder / "model"))
    built = BUILDERS[algo](
        OPTIONS[algo](**named),
        kind(train, validation, rows, 4),
        folder / "checkpoints",
        folder / "logs",
        Target(version),
    )
    return copy.deepcopy(built.config)


def changed(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The configuration with dotted keys changed; `...` takes a key out."""
    result = copy.deepcopy(config)
    for dotted, value in changes.items():
        *parents, leaf = dotted.split(".")
        section = result
        for key in parents:
            section = section.setdefault(key, {})
        if value is ...:
            section.pop(leaf, None)
        else:
            section[leaf] = value
    return result


def look(algo: str, config: dict[str, Any], trainer: Trainer, start: Start = Start.AUTO) -> Report:
    return preflight(algo, config, trainer, start=start)


def codes(report: Report, *levels: Level) -> list[str]:
    return [finding.code for finding in report.findings if finding.level in (levels or (Level.REFUSE,))]


def case_of(
    algo: str, config: dict[str, Any], tree: Path | None, datasets: str = "4.4.1", version: str = "0.6.0"
) -> Case:
    """A case whose interpreter is known already."""
    trainer = nemo_rl(tree) if tree else EMBEDDED
    found = Interpreter("3.13.13", {"datasets": datasets}, [], True, None, None) if tree else None
    return Case(ALGOS[algo], Settings(config), trainer, version, trainer.environment(0), found)


def save_checkpoint(folder: Path, at: int, config: dict[str, Any], **info: Any) -> Path:
    """A complete checkpoint as NeMo-RL leaves it, without weights."""
    import yaml

    checkpoint = folder / f"step_{at}"
    checkpoint.mkdir(parents=True)
    (checkpoint / "training_info.json").write_bytes(orjson.dumps({"total_steps": at, **info}))
    (checkpoint / "config.yaml").write_text(yaml.safe_dump(config))
    return checkpoint


def _talk(number: int) -> dict[str, Any]:
    talk = chat("user", "assistant")
    talk["messages"][0]["content"] = f"q{number}"
    return talk


def _ask(number: int) -> dict[str, Any]:
    return question(input=f"q{number}", output=str(number))
