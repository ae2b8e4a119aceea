"""Pairs to NeMo rank rows: ours beside `datasets.map` and pandas doing the same job, in one run.

    python benchmarks/conversion.py [--pairs 100000]

All three read the same file of pairs (about 1 kB each), split by prompt hash and write the same rows;
the outputs are compared. CPU seconds of one core; each arm runs in a process of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import orjson

from nvtrader_rl_dagster.datasets.convert import convert_pairs
from nvtrader_rl_dagster.datasets.shapes import nemo_rank_row
from nvtrader_rl_dagster.datasets.split import split_of

WORDS = ["fund", "risk", "rates", "duration", "weight", "equity", "credit", "hedge", "the", "of", "below", "limit"]


def make_pairs(path: Path, count: int) -> None:
    draw = random.Random(0)

    def text(words: int) -> str:
        return " ".join(draw.choices(WORDS, k=words))

    with path.open("wb") as out:
        for n in range(count):
            prompt = [{"role": "user", "content": f"{n // 2} {text(30)}" if n % 2 == 0 else "same"}]
            digest = hashlib.sha256(prompt[0]["content"].encode()).hexdigest()
            pair = {
                "pair_id": f"{n:032x}",
                "prompt": prompt,
                "chosen": [{"role": "assistant", "content": text(60)}],
                "rejected": [{"role": "assistant", "content": text(60)}],
                "weight": 1.0,
                "seqs": [n],
                "prompt_hash": digest,
                "origin": "preference",
            }
            out.write(orjson.dumps(pair) + b"\n")


def ours(pairs: Path, out: Path) -> None:
    convert_pairs(pairs, out, nemo_rank_row)


def with_datasets(pairs: Path, out: Path) -> None:
    """Hugging Face `datasets`: load, map, filter by side, write JSON lines."""
    import datasets

    datasets.disable_progress_bars()
    loaded = datasets.load_dataset("json", data_files=str(pairs), split="train", cache_dir=str(out / "cache"))
    mapped = loaded.map(
        lambda pair: {**nemo_rank_row(pair), "side": split_of(pair["prompt_hash"])},
        remove_columns=loaded.column_names,
    )
    for side in ("train", "validation"):
        rows = mapped.filter(lambda row, side=side: row["side"] == side).remove_columns("side")
        rows.to_json(out / f"{side}.jsonl", force_ascii=False)


def with_pandas(pairs: Path, out: Path) -> None:
    """pandas: read JSON lines, build the columns, write each side."""
    import pandas as pd

    frame = pd.read_json(pairs, lines=True, dtype={"pair_id": str, "prompt_hash": str})
    rows = pd.DataFrame([nemo_rank_row(pair) for pair in frame.to_dict("records")])
    side = frame["prompt_hash"].map(split_of)
    for name in ("train", "validation"):
        rows[side == name].to_json(out / f"{name}.jsonl", orient="records", lines=True, force_ascii=False)


ARMS = {"ours": ours, "datasets": with_datasets, "pandas": with_pandas}


def run_arm(name: str, pairs: Path, out: Path) -> None:
    """Child process: one arm, its CPU seconds and peak memory as JSON."""
    started = time.process_time()
    ARMS[name](pairs, out)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"cpu_s": time.process_time() - started, "peak_mib": peak}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--arm", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.arm:
        run_arm(options.arm[0], Path(options.arm[1]), Path(options.arm[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        pairs = Path(folder) / "pairs.jsonl"
        make_pairs(pairs, options.pairs)
        print(f"{options.pairs:,} pairs, {pairs.stat().st_size / options.pairs:.0f} bytes each")
        results, outputs = {}, {}
        for name in ARMS:
            out = Path(folder) / name
            out.mkdir()
            command = [sys.executable, __file__, "--arm", name, str(pairs), str(out)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            results[name] = json.loads(done.stdout.splitlines()[-1])
            outputs[name] = {
                side: [orjson.loads(x) for x in (out / f"{side}.jsonl").open("rb")] for side in ("train", "validation")
            }
        same = all(outputs[name] == outputs["ours"] for name in ARMS)
        for name, result in results.items():
            rate = options.pairs / result["cpu_s"]
            ratio = result["cpu_s"] / results["ours"]["cpu_s"]
            print(
                f"{name:9s} {rate:10,.0f} pairs per CPU second   {ratio:5.1f} x the CPU of ours   "
                f"{result['peak_mib']:6.0f} MiB peak"
            )
        print(f"same rows from all: {same}")
        if not same:
            sys.exit("the arms did not write the same rows")


if __name__ == "__main__":
    main()
