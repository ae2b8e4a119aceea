"""Held-out accuracy and off-topic loss of several DPO settings on one feedback file.

    python benchmarks/learning.py FEEDBACK [--base-model builtin:smollm2] [--settings 5e-6:1 1e-5:1 5e-6:1:shuffled]

A setting is learning rate : epochs, with ':shuffled' for the null, in which half of the training pairs
are turned around: it must score one half. The settings that ship were chosen with this.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import tempfile
import time
from pathlib import Path

import orjson
import yaml

from nvtrader_rl_dagster.datasets.convert import TRAIN, VALIDATION, convert_pairs
from nvtrader_rl_dagster.datasets.pair_files import PAIRS_FILE, write_pair_files
from nvtrader_rl_dagster.datasets.shapes import nemo_rank_row
from nvtrader_rl_dagster.evaluation.scores import Evaluation, evaluate, prompts_by_pair, read_scores
from nvtrader_rl_dagster.feedback.importing import import_paths
from nvtrader_rl_dagster.feedback.store import FeedbackStore
from nvtrader_rl_dagster.nemo_rl.backends import embedded_environment, embedded_trainer
from nvtrader_rl_dagster.nemo_rl.checkpoints import newest_checkpoint
from nvtrader_rl_dagster.nemo_rl.configs import DpoOptions, PreferenceData, build_dpo_config


def prepare(feedback: Path, folder: Path) -> PreferenceData:
    store = FeedbackStore(f"sqlite:///{folder / 'feedback.db'}")
    import_paths(store, [feedback])
    write_pair_files(store, folder)
    store.close()
    made = convert_pairs(folder / PAIRS_FILE, folder, nemo_rank_row)
    return PreferenceData(folder / TRAIN, folder / VALIDATION, made.train, made.validation, "benchmark", "", 0, 0.2)


def shuffled(train: Path, out: Path) -> Path:
    draw = random.Random(0)
    with train.open("rb") as source, out.open("wb") as target:
        for line in source:
            row = orjson.loads(line)
            if draw.random() < 0.5:
                for completion in row["completions"]:
                    completion["rank"] = 1 - completion["rank"]
            target.write(orjson.dumps(row) + b"\n")
    return out


def trainer(command: str, config: dict, folder: Path) -> None:
    file = folder / f"{command}.yaml"
    file.write_text(yaml.safe_dump(config))
    arguments = embedded_trainer([command, "--config", str(file)])
    with (folder / f"{command}.log").open("w") as log:
        subprocess.run(arguments, env=embedded_environment(None), stdout=log, stderr=log, check=True)


def measure(setting: str, data: PreferenceData, folder: Path, base_model: str) -> Evaluation:
    rate, epochs, *null = setting.split(":")
    folder.mkdir()
    train = shuffled(data.train, folder / TRAIN) if null else data.train
    own = PreferenceData(train, data.validation, data.train_rows, data.validation_rows, "benchmark", "", 0, 0.2)
    options = DpoOptions(
        base_model=base_model, learning_rate=float(rate), epochs=int(epochs), validation_pairs=1, save_period=10_000
    )
    built = build_dpo_config(options, own, folder / "checkpoints", folder)
    trainer("dpo", built.config, folder)
    checkpoint = newest_checkpoint(folder / "checkpoints")
    assert checkpoint is not None
    models = {"base": built.config["policy"]["model_name"], "candidate": str(checkpoint.huggingface)}
    score = {
        "models": models,
        "data_path": str(data.validation),
        "output_dir": str(folder),
        "max_total_sequence_length": options.max_sequence_tokens,
    }
    trainer("score", score, folder)
    summary = orjson.loads((folder / "summary.json").read_bytes())
    return evaluate(
        read_scores(folder / "base.jsonl"),
        read_scores(folder / "candidate.jsonl"),
        None,
        prompts_by_pair(data.validation),
        {name: summary[name]["off_topic_loss"] for name in models},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("feedback", type=Path)
    parser.add_argument("--base-model", default="auto")
    parser.add_argument("--settings", nargs="+", default=["5e-6:1", "1e-5:1", "5e-6:1:shuffled"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = prepare(options.feedback, folder)
        print(f"{data.train_rows} training pairs, {data.validation_rows} held out")
        for number, setting in enumerate(options.settings):
            started = time.monotonic()
            e = measure(setting, data, folder / str(number), options.base_model)
            c = e.candidate
            print(
                f"{setting:18s} accuracy {c.accuracy:.3f} [{c.interval[0]:.3f}, {c.interval[1]:.3f}] p {c.p_value:.4f}"
                f"  chosen longer/not {c.accuracy_chosen_longer or 0:.2f}/{c.accuracy_chosen_not_longer or 0:.2f}"
                f"  longer wins {e.longer_wins_accuracy:.3f}"
                f"  length-normalised {e.base_length_normalised_accuracy:.3f} → {c.length_normalised_accuracy:.3f}"
                f"  off-topic {e.off_topic_loss['base']:.4f} → {e.off_topic_loss['candidate']:.4f}"
                f"  chosen {c.chosen_shift_per_token:+.3f} nats/token  {time.monotonic() - started:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
