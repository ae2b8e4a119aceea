"""One page out of a log of 10 million lines beside one out of 10 thousand: time, and bytes read from the file.

    python benchmarks/log_tail.py [--lines 10000000] [--rounds 200]

Medians, taken in turns. Needs about 1 GB in the temporary folder. The gate is a ratio of 2 at every place.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from nvtrader_rl_dagster.nemo_rl.run_log import tail

_SMALL = 10_000
_PAGE = 200
_BLOCK = 100_000
_TEXT = "▶ step: • loss: 0.6931 \\u001b[1mpolicy_training\\u001b[0m 93.3%"


def write_log(path: Path, lines: int) -> None:
    with path.open("w", encoding="utf-8") as log:
        for start in range(1, lines + 1, _BLOCK):
            numbers = range(start, min(start + _BLOCK, lines + 1))
            log.write("".join(f'{{"n":{n},"ts":"2026-01-01T00:00:00.000Z","text":"{_TEXT}"}}\n' for n in numbers))


def bytes_read() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    return int(fields["rchar"])


def measure(path: Path, since: int | None) -> tuple[float, int]:
    """Seconds and bytes of one page."""
    before = bytes_read()
    overhead = bytes_read() - before  # reading the counter counts as well
    before, started = bytes_read(), time.perf_counter()
    page = tail(path, since, _PAGE)
    seconds = time.perf_counter() - started
    read = bytes_read() - before - overhead
    assert len(page.lines) == _PAGE and page.lines[0].n == (page.total - _PAGE if since is None else since) + 1
    return seconds, read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        logs = {lines: Path(folder) / f"{lines}.jsonl" for lines in (_SMALL, options.lines)}
        for lines, path in logs.items():
            started = time.perf_counter()
            write_log(path, lines)
            size = path.stat().st_size
            print(f"{lines:,} lines, {size / 1e6:,.1f} MB, written in {time.perf_counter() - started:.1f} s")
        for place, share in (("start", 0.0), ("quarter", 0.25), ("middle", 0.5), ("end", 1.0), ("last lines", None)):
            results: dict[int, list[tuple[float, int]]] = {lines: [] for lines in logs}
            for _ in range(options.rounds):
                for lines, path in logs.items():
                    since = None if share is None else int((lines - _PAGE) * share)
                    results[lines].append(measure(path, since))
            seconds = {n: statistics.median(s for s, _ in found) for n, found in results.items()}
            read = {n: int(statistics.median(b for _, b in found)) for n, found in results.items()}
            print(
                f"{place:<11}"
                + "  ".join(f"{n:>11,} lines: {seconds[n] * 1e3:6.2f} ms {read[n] / 1e3:7.1f} KB" for n in logs)
                + f"   ratio {seconds[options.lines] / seconds[_SMALL]:.2f}"
            )


if __name__ == "__main__":
    main()
