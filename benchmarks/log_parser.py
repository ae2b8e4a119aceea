"""Speed of the log parser, beside plain passes over the same bytes.

    python benchmarks/log_parser.py [--megabytes 300] [--rounds 5]

Three logs: a long GRPO run (mostly workers, progress bars and samples), the same as the supervisor stores it, and
nothing but dense blocks. One core, file in the page cache, rounds in turns, best of each. The aim is 200 MB/s for the
first.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson

from nvtrader_rl_dagster.nemo_rl.logs.report import LogStream

_BLOCK = 1 << 18
_RULE = "=" * 25
_NOISE = (
    "\x1b[36m(VllmGenerationWorker pid={n})\x1b[0m INFO 01-01 00:00:00 [loggers.py:{n}] Engine 000: Running: 64 reqs, "
    "Waiting: 0 reqs, GPU KV cache usage: 12.4%\n",
    "\x1b[36m(VllmGenerationWorker pid={n})\x1b[0m Processed prompts:  45%|████▌     | 231/512 [00:12<00:15, 18.3it/s, "
    "est. speed input: 1200.11 toks/s, output: 900.10 toks/s]\n",
    "\x1b[36m(DTensorPolicyWorkerV2[rank=0] pid={n})\x1b[0m GPU Memory after optimizer offload: 10.{n} GB allocated\n",
    "Adding requests: 100%|██████████| 512/512 [00:00<00:00, {n}.40it/s]\n",
    "│ ASSISTANT: The price rose by {n} percent, so the position gained 12.5 dollars.  │\n",
    "│                                                                              │\n",
    "Skipping aggregation for advantages/mean (<class 'float'>)\n",
    "Plasma memory usage 0 MiB, {n} objects, 0.0% full, 0.0% needed\n",
    "\n",
)


def block(step: int, steps: int) -> str:
    parts = "".join(f"  • {name}: 0.{step % 90:02d}s (1.0%)\n" for name in ("generation", "policy_training", "refit"))
    return (
        f"\n{_RULE} Step {step}/{steps} {_RULE}\n▶ Preparing batch...\n"
        f"\n📊 Training Results:\n  • Loss: 0.{step:06d}\n  • Generation KL Error: 0.0012\n"
        f"  • Avg Reward: 0.5312\n  • Mean Generation Length: 812.2500\n\n⏱️  Timing:\n"
        f"  • Total step time: 31.30s\n{parts}"
    )


def write_log(path: Path, megabytes: int, noise_lines: int) -> int:
    """Blocks with `noise_lines` lines of noise between them; returns the number of steps."""
    draw = random.Random(0)
    noise = [line.format(n=draw.randint(1, 99999)) for line in _NOISE for _ in range(50)]
    steps = 0
    with path.open("w", encoding="utf-8") as file:
        file.write("📊 Using checkpoint directory: checkpoints\n")
        while file.tell() < megabytes * 1_000_000:
            steps += 1
            file.write("".join(draw.choices(noise, k=noise_lines)) + block(steps, 10**6))
    return steps


def as_run_log(path: Path, plain: Path) -> None:
    with path.open("wb") as file, plain.open("rb") as lines:
        for n, line in enumerate(lines, 1):
            text = line.decode().removesuffix("\n")
            file.write(orjson.dumps({"n": n, "ts": "2026-01-01T00:00:00.000Z", "text": text}) + b"\n")


def blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while data := file.read(_BLOCK):
            yield data


def parse(path: Path) -> int:
    stream = LogStream()
    for data in blocks(path):
        stream.feed(data)
    stream.close()
    return stream.parser.steps_seen


def newlines(path: Path) -> int:
    return sum(data.count(b"\n") for data in blocks(path))


def lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def seconds(work: Callable[[Path], int], path: Path) -> float:
    started = time.process_time()
    work(path)
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        noisy, stored, dense = (Path(folder) / name for name in ("noisy.log", "log.jsonl", "dense.log"))
        counts = {noisy: write_log(noisy, options.megabytes, 200), dense: write_log(dense, options.megabytes // 10, 0)}
        as_run_log(stored, noisy)
        counts[stored] = counts[noisy]
        for path in (noisy, stored, dense):
            assert parse(path) == counts[path]
            work = (newlines, lines, parse)
            best = dict.fromkeys(work, float("inf"))
            for _ in range(options.rounds):
                for function in work:
                    best[function] = min(best[function], seconds(function, path))
            size = path.stat().st_size / 1e6
            print(
                f"{path.name:<10} {size:7.1f} MB {counts[path]:>8,} steps: parse {size / best[parse]:6.0f} MB/s, "
                f"newline count {size / best[newlines]:6.0f} MB/s (ratio {best[parse] / best[newlines]:5.1f}), "
                f"lines {size / best[lines]:6.0f} MB/s (ratio {best[parse] / best[lines]:5.1f})"
            )


if __name__ == "__main__":
    main()
