"""What the process core costs: `gb10.train` around a child that does nothing, and a whole DPO by hand and by Dagster.

Gates: at most 0.5 s more than the bare child; at most 2 % more wall time than the same trainer started by hand, plus a
fixed part that is printed.
"""

import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from nvtrader_rl_dagster.definitions import defs
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.backends import Backend, embedded_environment, embedded_trainer
from nvtrader_rl_dagster.nemo_rl.configs import DpoOptions
from nvtrader_rl_dagster.nemo_rl.runs import RunDirectory, RunStore
from nvtrader_rl_dagster.resources.artifacts import ArtifactStore
from nvtrader_rl_dagster.resources.gb10 import GB10Resource

ROUNDS = 7
LENGTHS = [2, 40]
SECONDS: list[float] = []
#: The least that counts as a training.
CHILD = """
import pathlib, sys, yaml
folder = pathlib.Path(yaml.safe_load(open(sys.argv[-1]))["checkpointing"]["checkpoint_dir"]) / "step_1"
weights = folder / "policy/weights/model/consolidated"
weights.mkdir(parents=True, exist_ok=True)
(weights / "config.json").write_text("{}"); (weights / "model.safetensors").write_bytes(b"weights")
(weights / "tokenizer.json").write_text("{}")
(folder / "training_info.json").write_text("{}")
print("=" * 25 + " Step 1/1 " + "=" * 25)
print("📊 Training Results:\\n  • loss: 0.6931\\n\\n⏱️  Timing:")
"""
TRAINING = {"base_model": "builtin:tiny", "batch_pairs": 16, "epochs": 1000, "validation_pairs": 32}


@dg.asset
def around_nothing(context: dg.AssetExecutionContext, gb10: GB10Resource) -> Iterator[Any]:
    """A training whose trainer prints one step and writes one empty checkpoint."""
    started = time.perf_counter()
    yield from gb10.train("dpo", DpoOptions(base_model=os.environ["NVTRADER_RL_BASE_MODEL"]), context=context).stream()
    SECONDS.append(time.perf_counter() - started)


def complete_model(folder: Path) -> Path:
    """The files that a run is refused without, with nothing in them."""
    folder.mkdir()
    header = b'{"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    return folder


def cost_of_train(instance: dg.DagsterInstance, root: Path) -> float:
    """Seconds that `gb10.train(...).stream()` takes on top of the same child started bare, medians."""
    script = root / "tree" / "examples" / "run_dpo.py"
    script.parent.mkdir(parents=True)
    script.write_text(CHILD)
    version = script.parents[1] / "nemo_rl" / "package_info.py"
    version.parent.mkdir()
    version.write_text("MAJOR = 0\nMINOR = 6\nPATCH = 0\n")
    os.environ["NVTRADER_RL_BASE_MODEL"] = str(complete_model(root / "model"))
    artifacts = ArtifactStore()
    gb10 = GB10Resource(
        artifacts=artifacts,
        backend=Backend.NEMO_RL,
        nemo_rl_python=sys.executable,
        nemo_rl_source=str(script.parents[1]),
    )
    config = root / "bare.yaml"
    config.write_text(yaml.safe_dump({"checkpointing": {"checkpoint_dir": str(root / "bare")}}))
    bare = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        subprocess.run([sys.executable, str(script), "--config", str(config)], check=True, stdout=subprocess.DEVNULL)
        bare.append(time.perf_counter() - started)
        assert dg.materialize([around_nothing], instance=instance, resources={"gb10": gb10}).success
    alone, around = statistics.median(bare), statistics.median(SECONDS)
    print(f"child that does nothing: bare {alone:.3f} s, gb10.train {around:.3f} s, cost {around - alone:.3f} s")
    return around - alone


def by_dagster(instance: dg.DagsterInstance, steps: int) -> tuple[float, RunDirectory]:
    """Seconds of the whole Dagster run of `dpo_checkpoint`, and its run folder."""
    started = time.perf_counter()
    result = defs.resolve_job_def("feedback_to_champion").execute_in_process(
        instance=instance,
        run_config={"ops": {"dpo_checkpoint": {"config": {**TRAINING, "max_steps": steps}}}},
        asset_selection=[dg.AssetKey("dpo_checkpoint")],
    )
    assert result.success
    seconds = time.perf_counter() - started
    return seconds, next(RunStore(Home.from_env().runs).all())


def by_hand(run: RunDirectory, root: Path) -> float:
    """The same YAML, with another checkpoint folder, in the same trainer without anything around it."""
    config = yaml.safe_load(run.config.read_text())
    config["checkpointing"]["checkpoint_dir"] = tempfile.mkdtemp(dir=root)
    file = root / "by_hand.yaml"
    file.write_text(yaml.safe_dump(config))
    started = time.perf_counter()
    with (root / "by_hand.log").open("w") as log:
        subprocess.run(
            embedded_trainer(["dpo", "--config", str(file)]), env=embedded_environment(0), stdout=log, check=True
        )
    return time.perf_counter() - started


def main() -> None:
    from tests.loop import clear_preferences, import_into, run_job

    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        os.environ["NVTRADER_RL_HOME"] = str(root / "home")
        import_into(root / "home", clear_preferences(root / "feedback.jsonl", prompts=200))
        dagster_home = root / "dagster"
        dagster_home.mkdir()
        with dg.DagsterInstance.from_config(str(dagster_home)) as instance:
            assert run_job(instance, assets=["preference_pairs", "nemo_rl_dataset"]).success
            cost_of_train(instance, root)
            times: dict[int, list[tuple[float, float]]] = {steps: [] for steps in LENGTHS}
            for steps in LENGTHS * 2:  # in turn, so that a noisy minute hits all
                orchestrated, run = by_dagster(instance, steps)
                times[steps].append((by_hand(run, root), orchestrated))
                alone = times[steps][-1][0]
                print(f"DPO, {steps} steps: by hand {alone:.1f} s, by Dagster {orchestrated:.1f} s", flush=True)
        (short_hand, short), (long_hand, long) = (
            [min(column) for column in zip(*times[steps], strict=True)] for steps in LENGTHS
        )
        # Two lengths tell the part that every run pays (checks of the checkpoint, pictures) from the part that grows.
        growth = (long - short) / (long_hand - short_hand)
        print(f"fixed part {short - short_hand:.1f} s; each further second by hand is {growth:.3f} s by Dagster")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main()
