"""Import speed and memory: `python benchmarks/feedback_import.py [rows]` writes rows of about 1 kB and imports them."""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from nvtrader_rl_dagster.feedback.importing import import_paths
from nvtrader_rl_dagster.feedback.pair_report import build_pairs
from nvtrader_rl_dagster.feedback.store import FeedbackStore


def write_rows(path: Path, rows: int) -> None:
    """Preference rows of about 1 kB, one prompt each."""
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(2000)]
    with path.open("w", encoding="utf-8") as out:
        for i in range(rows):
            texts = [" ".join(generator.choices(words, k=40)) for _ in range(3)]
            row = {"prompt": f"{i} {texts[0]}", "chosen": texts[1], "rejected": texts[2]}
            out.write(json.dumps(row) + "\n")


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        write_rows(path, rows)
        size = path.stat().st_size / rows
        store = FeedbackStore(f"sqlite:///{folder}/feedback.db")
        before = peak_mib()
        start, used = time.perf_counter(), time.process_time()
        report = import_paths(store, [path])
        seconds, used = time.perf_counter() - start, time.process_time() - used
        if report.usable_pairs != rows:
            raise SystemExit(f"{report.usable_pairs} pairs from {rows} rows")
        print(f"import: {rows} rows of {size:.0f} B in {seconds:.1f} s = {rows / seconds:.0f} rows/s")
        print(f"        {used:.1f} s of CPU = {rows / used:.0f} rows per CPU second")
        start = time.perf_counter()
        build_pairs(store)
        seconds = time.perf_counter() - start
        print(f"pairs: {seconds:.1f} s = {rows / seconds:.0f} pairs/s")
        print(f"peak memory: {before:.0f} MiB before, {peak_mib():.0f} MiB after")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
