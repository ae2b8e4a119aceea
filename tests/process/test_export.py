"""Exports under a supervisor: into their place or not at all, without the GPU, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
import yaml

from nvtrader_rl_dagster.nemo_rl.backends import Trainer, embedded_trainer
from nvtrader_rl_dagster.nemo_rl.checkpoints import Checkpoint, complete_checkpoints
from nvtrader_rl_dagster.nemo_rl.export.exporter import Exporter, ExportError
from nvtrader_rl_dagster.nemo_rl.launch_files import Limits
from nvtrader_rl_dagster.nemo_rl.lease import GpuLease
from nvtrader_rl_dagster.nemo_rl.processes import launches
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory
from tests.process.launching import Workplace, gone, log, pids, wait_for

MAKER = Path(__file__).parents[1] / "contract/checkpoint_maker.py"
LOSS = "val:validation-default_loss"
#: Stands in for the trainer's packages: writes what `assemble.py` writes.
MAKE = """
import json, os, pathlib, sys
kind, step, staging = sys.argv[3], pathlib.Path(sys.argv[4]), pathlib.Path(sys.argv[5])
print("gpu", repr(os.environ["CUDA_VISIBLE_DEVICES"]), kind, flush=True)
out = staging / "out"
out.mkdir()
(out / "config.json").write_text("{}"); (out / "tokenizer.json").write_text("{}")
(out / "model.safetensors").write_bytes(step.name.encode())
(out / "model.safetensors").chmod(0o600)
(staging / "report.json").write_text(json.dumps({"loss": 1.5}))
"""
BREAK = """
import pathlib, sys
(pathlib.Path(sys.argv[5]) / "out").mkdir()
sys.exit("export: 1 of 39 weights differ from the source: ['model.norm.weight']")
"""
WAIT = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
print("pids", os.getpid(), child.pid, flush=True)
time.sleep(300)
"""


def interpreter(folder: Path, code: str) -> str:
    """An executable that runs `code` whatever script it is given."""
    script = folder / "stand_in.py"
    script.write_text(textwrap.dedent(code))
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    python.chmod(0o755)
    return str(python)


def exporter(place: Workplace, run: RunDirectory, code: str) -> Exporter:
    return Exporter(run, Trainer("local", "", interpreter(run.path, code)), place.lease, Limits(grace=1.0))


def trained(place: Workplace, losses: dict[int, float]) -> RunDirectory:
    """A run of v1 checkpoints, by step."""
    run = place.new_run()
    for step, loss in losses.items():
        folder = run.checkpoints / f"step_{step}"
        (folder / "policy/weights").mkdir(parents=True)
        (folder / "policy/weights/.metadata").write_bytes(b"m")
        (folder / "policy/weights/__0_0.distcp").write_bytes(b"%d" % step)
        (folder / "training_info.json").write_text(json.dumps({LOSS: loss}))
        section = {"metric_name": LOSS, "higher_is_better": False}
        (folder / "config.yaml").write_text(yaml.safe_dump({"checkpointing": section}))
        checkpoint = Checkpoint(folder, step)
        checkpoint.write_manifest({"base_model": "base", **checkpoint.describe()})
    return run


def tree(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def test_newest_and_best_are_exported_and_known_by_their_exported_weights(place: Workplace) -> None:
    run = trained(place, {9: 0.3, 10: 0.2, 11: 0.4})
    before = {c.step: c.weights_sha256() for c in complete_checkpoints(run.checkpoints)}
    made = exporter(place, run, MAKE).newest_and_best()
    assert made == [run.checkpoints / "step_11/hf", run.checkpoints / "step_10/hf"]
    nine, ten, eleven = complete_checkpoints(run.checkpoints)
    assert nine.manifest["huggingface"] is None and nine.manifest["weights_sha256"] == before[9]
    for checkpoint in (ten, eleven):
        manifest = checkpoint.manifest
        assert manifest["huggingface"] == "hf" and manifest["format"] == "dcp" and manifest["base_model"] == "base"
        assert manifest["weights_sha256"] == checkpoint.weights_sha256() != before[checkpoint.step]
        assert manifest["export"]["loss"] == 1.5 and manifest["export"]["from"] == "dcp"
        assert (checkpoint.huggingface / "model.safetensors").stat().st_mode & 0o777 == 0o644
        assert not list(checkpoint.path.glob(".hf-*"))


def test_what_is_exported_already_is_left_as_it_is(place: Workplace) -> None:
    run = trained(place, {2: 0.3})
    exporter(place, run, MAKE).newest_and_best()
    before = tree(run.checkpoints)
    assert exporter(place, run, BREAK).newest_and_best() == [run.checkpoints / "step_2/hf"]
    assert tree(run.checkpoints) == before


def test_the_gpu_is_left_to_its_holder(place: Workplace) -> None:
    run = trained(place, {2: 0.3})
    lease = GpuLease(place.lease)
    assert lease.acquire({}, 0)
    exporter(place, run, MAKE).newest_and_best()
    lease.release()
    said = [row["text"] for row in log(RunDirectory(run.path / "export/step_2"))]
    assert said == ["gpu '' dcp"]


def test_a_failed_verification_leaves_the_checkpoint_as_it_was(place: Workplace) -> None:
    run = trained(place, {2: 0.3})
    before = tree(run.checkpoints)
    with pytest.raises(ExportError, match=r"step_2 could not be exported: 1 of 39 weights differ .*log\.jsonl"):
        exporter(place, run, BREAK).newest_and_best()
    assert tree(run.checkpoints) == before
    assert [p.name for p in (run.checkpoints / "step_2").iterdir() if p.name.startswith(".hf-")] == []


def test_an_unknown_format_is_refused_before_anything_starts(place: Workplace) -> None:
    run = trained(place, {2: 0.3})
    (run.checkpoints / "step_2/policy/weights/.metadata").unlink()
    with pytest.raises(ExportError, match="in none of the formats"):
        exporter(place, run, MAKE).newest_and_best()


def test_an_export_that_was_killed_before_it_was_noted_is_noted_by_the_next_one(place: Workplace) -> None:
    run = trained(place, {2: 0.3})
    (checkpoint,) = complete_checkpoints(run.checkpoints)
    before = checkpoint.manifest
    exporter(place, run, MAKE).newest_and_best()
    checkpoint.write_manifest(before)
    exporter(place, run, BREAK).newest_and_best()
    assert checkpoint.manifest["weights_sha256"] == checkpoint.weights_sha256() != before["weights_sha256"]


def test_what_loads_as_it_is_starts_nothing(place: Workplace) -> None:
    run = trained(place, {2: 0.3})
    folder = run.checkpoints / "step_2/policy/weights/model/consolidated"
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text("{}")
    (checkpoint,) = complete_checkpoints(run.checkpoints)
    checkpoint.write_manifest(checkpoint.describe())
    assert exporter(place, run, BREAK).newest_and_best() == [folder]
    assert not (run.path / "export").exists()


def test_too_little_room_is_seen_before_anything_starts(place: Workplace) -> None:
    run = trained(place, {2: 0.3})
    with (run.checkpoints / "step_2/policy/weights/__0_0.distcp").open("wb") as shard:
        shard.truncate(1 << 43)  # sparse
    with pytest.raises(ExportError, match=r"needs about 17592\.2 GB .*nvtrader-rl prune"):
        exporter(place, run, MAKE).newest_and_best()


def test_what_a_killed_export_left_goes_with_the_next_one(place: Workplace) -> None:
    run = trained(place, {2: 0.3})
    (run.checkpoints / "step_2/.hf-killed/out").mkdir(parents=True)
    exporter(place, run, MAKE).newest_and_best()
    assert not (run.checkpoints / "step_2/.hf-killed").exists()


def test_another_place_must_be_new_and_leaves_the_checkpoint_alone(place: Workplace, tmp_path: Path) -> None:
    run = trained(place, {2: 0.3})
    before = tree(run.checkpoints)
    (checkpoint,) = complete_checkpoints(run.checkpoints)
    out = tmp_path / "models" / "mine"
    assert exporter(place, run, MAKE).export(checkpoint, out) == out
    assert (out / "model.safetensors").read_bytes() == b"step_2" and tree(run.checkpoints) == before
    assert list(out.parent.iterdir()) == [out]
    with pytest.raises(ExportError, match="exists already"):
        exporter(place, run, MAKE).export(checkpoint, out)


def test_an_interrupted_export_ends_its_processes(place: Workplace) -> None:
    run = trained(place, {2: 0.3})
    before = tree(run.checkpoints)
    directory = RunDirectory(run.path / "export/step_2")
    children: list[int] = []

    def interrupt() -> None:
        wait_for(lambda: bool(log(directory)))
        children.extend(pids(directory))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        exporter(place, run, WAIT).newest_and_best()
        time.sleep(60)
    thread.join()
    assert len(children) == 2 and gone(*children)
    assert not launches(run.path / "export/lease")
    assert tree(run.checkpoints) == before and not list((run.checkpoints / "step_2").glob(".hf-*"))


@pytest.mark.slow
def test_the_shards_of_two_ranks_become_a_model(place: Workplace) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    run = place.new_run()
    step = run.checkpoints / "step_2"
    step.mkdir(parents=True)
    model = subprocess.run(embedded_trainer(["model", "builtin:tiny"]), capture_output=True, text=True, check=True)
    base = json.loads(model.stdout)["path"]
    (step / "training_info.json").write_text("{}")
    (step / "config.yaml").write_text(yaml.safe_dump({"policy": {"model_name": base}}))
    subprocess.run([sys.executable, str(MAKER), "safetensors", base, str(step)], check=True)
    (checkpoint,) = complete_checkpoints(run.checkpoints)
    assert len(list(step.glob("policy/weights/model/shard-*"))) == 2
    trainer = Trainer("local", "", sys.executable)
    folder = Exporter(run, trainer, place.lease, Limits(grace=1.0), threads=1).export(checkpoint)
    loaded, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    expected, state = torch.load(step / "expected.pt", weights_only=True), loaded.state_dict()
    assert expected.keys() == state.keys()
    assert all(torch.equal(expected[name], state[name]) for name in expected)
    assert (folder / "chat_template.jinja").read_text().endswith("of the checkpoint")
