"""Lengths in tokens: a bound from bytes where that is enough, else counted with the model's own tokenizer."""

from __future__ import annotations

import contextlib
import hashlib
import math
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from nvtrader_rl_dagster.files import read_json, write_json
from nvtrader_rl_dagster.nemo_rl.preflight.case import Case
from nvtrader_rl_dagster.nemo_rl.preflight.data_rows import Scan
from nvtrader_rl_dagster.nemo_rl.preflight.report import Finding, SetRows, refuse, warn

#: Bytes of English text in a token, for an estimate where no tokenizer can be had.
_BYTES_PER_TOKEN = 4
#: Time that counting may take, and what loading a tokenizer may take on top.
SECONDS, _LOADING_SECONDS = 30.0, 60.0
_PROBE = Path(__file__).with_name("length_probe.py")
#: Expected batches with every row masked from which a warning is worth its line.
_EXPECTED_BATCHES = 0.01


@dataclass(frozen=True)
class Lengths:
    """How long the rows of a set are. how: `bytes` (longest is an upper bound), `tokens` or `estimate`.

    counted: rows that were looked at with the tokenizer; the others are surely short enough, unless time ran out.
    """

    how: str
    longest: int
    too_long: int
    counted: int = 0
    doubtful: int = 0


def token_limit(case: Case) -> int | None:
    """Tokens above which a row is masked; the embedded trainer also keeps to the model's own limit."""
    if not case.trains:
        return None
    limits = [case.settings.number("data.max_input_seq_length")]
    if case.embedded:
        limits.append(case.settings.number("policy.max_total_sequence_length"))
    return min((limit for limit in limits if limit is not None), default=None)


def measure(case: Case, scans: Sequence[Scan], limit: int, cache: Path | None) -> tuple[list[Lengths], list[Finding]]:
    """Lengths of each scanned set, and a finding when they could not be counted."""
    if not any(scan.doubtful_rows for scan in scans):
        return [Lengths("bytes", scan.longest_bound, 0) for scan in scans], []
    problem = _cannot_count(case)
    counted: dict[str, Any] = {"error": problem} if problem else _counted(case, scans, limit, cache)
    if "error" in counted:
        message = f"lengths are estimated from bytes, {_BYTES_PER_TOKEN} to a token: {counted['error']}"
        remedy = "make the tokenizer loadable, or check the lengths yourself"
        return [_estimate(scan, limit) for scan in scans], [] if problem else [
            warn("lengths_estimated", message, remedy)
        ]
    found = [
        Lengths("tokens", max(row["longest"], 0), row["too_long"], row["rows"], scan.doubtful_rows)
        if scan.doubtful_rows
        else Lengths("bytes", scan.longest_bound, 0)
        for scan, row in zip(scans, counted["sets"], strict=True)
    ]
    if counted["complete"]:
        return found, []
    some = ", ".join(f"{x.counted:,} of {x.doubtful:,}" for x in found if x.doubtful)
    message = f"only {some} long rows were counted within {SECONDS:.0f} s"
    return found, [warn("lengths_sampled", message, "the rest may hold more rows that are too long")]


def findings_of(case: Case, scan: Scan, lengths: Lengths, limit: int) -> Iterator[Finding]:
    """What the lengths mean for the run."""
    name, rows, long = scan.block.name, scan.rows, lengths.too_long
    if not long:
        return
    said = f"{name}: {'about ' if lengths.how == 'estimate' else ''}{long:,} of {rows:,} rows"
    remedy = "raise data.max_input_seq_length and policy.max_total_sequence_length, or shorten the rows"
    if long == rows:
        message = f"{said} have more than {limit:,} tokens: all would be masked, and nothing trained"
        if lengths.how == "estimate" or scan.block.role != "train":
            yield warn("all_too_long", message, remedy)
        else:
            yield refuse("all_too_long", message, remedy)
        return
    yield warn(
        "too_long", f"{said} have more than {limit:,} tokens and are masked (longest {lengths.longest:,})", remedy
    )
    if scan.block.role == "train" and case.preference and not case.embedded:
        yield from _masked_batches(case, rows, long, lengths.how)


def _masked_batches(case: Case, rows: int, long: int, how: str) -> Iterator[Finding]:
    """DPO and RM end with a KeyError at a batch whose rows are all masked.

    Expected such batches of one epoch: (rows // b) C(long, b) / C(rows, b), drawing without replacement.
    """
    batch = case.settings.number("policy.train_global_batch_size")
    if not batch or long < batch or rows < batch:
        return
    expected = rows // batch * math.comb(long, batch) / math.comb(rows, batch)
    remedy = "remove the rows that are too long, or raise policy.train_global_batch_size"
    message = f"a batch with every row masked ends the run; {expected:.2g} such batches are expected in each epoch"
    if batch == 1 and how == "tokens":
        yield refuse("masked_batch", message, remedy)
    elif expected > _EXPECTED_BATCHES:
        yield warn("masked_batch", message, remedy)


def rows_of(scan: Scan, lengths: Lengths | None) -> SetRows:
    """The line of a set in the report."""
    block = scan.block
    if lengths is None:
        return SetRows(block.name, block.source, scan.rows, scan.bad)
    return SetRows(block.name, block.source, scan.rows, scan.bad, lengths.too_long, lengths.longest, lengths.how)


def _estimate(scan: Scan, limit: int) -> Lengths:
    if scan.doubtful is None:
        return Lengths("bytes", scan.longest_bound, 0)
    scan.doubtful.seek(0)
    too_long = longest = 0
    for line in scan.doubtful:
        sides = orjson.loads(line)
        tokens = max(sum(len(str(m["content"] or "").encode()) for m in side) for side in sides) // _BYTES_PER_TOKEN
        longest = max(longest, tokens)
        too_long += tokens > limit
    return Lengths("estimate", longest, too_long)


def _cannot_count(case: Case) -> str:
    """Why no tokenizer is asked; empty when one is."""
    name = _tokenizer(case).get("name")
    if not isinstance(name, str):
        return "policy.tokenizer.name is not set"
    if name.startswith("builtin:"):
        # The embedded trainer counts them itself within seconds; asking it twice would cost as much.
        return "the tokenizer is built in"
    if not case.embedded and case.interpreter is None:
        return "the interpreter did not answer"
    return ""


def _tokenizer(case: Case) -> dict[str, Any]:
    settings = case.settings.section("policy.tokenizer") or case.settings.section("tokenizer")
    if case.embedded:
        settings.setdefault("name", case.settings.get("policy.model_name"))
    return settings


def _counted(case: Case, scans: Sequence[Scan], limit: int, cache: Path | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        task = {
            "tokenizer": _tokenizer(case),
            "seconds": SECONDS,
            "sets": [set_to_count(case, scan, limit, Path(folder) / str(index)) for index, scan in enumerate(scans)],
        }
        kept = cache / f"{_identity(case, task)}.json" if cache else None
        if kept is not None and kept.is_file():
            answer: dict[str, Any] = read_json(kept)
            return answer
        answer = _ask(case, task, Path(folder) / "task.json")
    if kept is not None and answer.get("complete"):
        with contextlib.suppress(OSError):
            write_json(kept, answer)
    return answer


def set_to_count(case: Case, scan: Scan, limit: int, file: Path) -> dict[str, Any]:
    """One set of `length_probe`'s task; its rows are written to `file`."""
    with file.open("wb") as out:
        if scan.doubtful is not None:
            scan.doubtful.seek(0)
            shutil.copyfileobj(scan.doubtful, out)
    texts = {}
    for key in ("prompt_file", "system_prompt_file"):
        name = scan.block.settings.get(key)
        path = case.path(name) if isinstance(name, str) else None
        texts[key] = path.read_text(encoding="utf-8") if path is not None and path.is_file() else ""
    chat = case.settings.section("data")
    return {
        "file": str(file),
        "limit": limit,
        # Pairs are masked above the limit, everything else at it.
        "at_limit": not case.preference,
        "rl": case.rl,
        "add_bos": bool(chat.get("add_bos", True)),
        "add_eos": bool(chat.get("add_eos", True)),
        "generation_prompt": bool(chat.get("add_generation_prompt", False)),
        "prompt": texts["prompt_file"],
        "system": texts["system_prompt_file"],
    }


def _ask(case: Case, task: dict[str, Any], file: Path) -> dict[str, Any]:
    file.write_bytes(orjson.dumps(task))
    environment = {**case.environment, "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}
    try:
        done = subprocess.run(
            [case.trainer.python, str(_PROBE), str(file)],
            cwd=case.trainer.cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS + _LOADING_SECONDS,
            check=True,
        )
        answer: dict[str, Any] = orjson.loads(done.stdout.strip().splitlines()[-1])
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or "").strip().splitlines()
        return {"error": lines[-1] if lines else f"the tokenizer's process ended with {error.returncode}"}
    except (OSError, subprocess.TimeoutExpired, IndexError, ValueError) as error:
        return {"error": str(error)}
    return answer


def _identity(case: Case, task: dict[str, Any]) -> str:
    """What the counts depend on: rows, settings, tokenizer files and interpreter."""
    digest = hashlib.sha256(case.trainer.python.encode())
    for options in task["sets"]:
        plain = {key: value for key, value in options.items() if key != "file"}
        digest.update(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS))
        with Path(options["file"]).open("rb") as rows:
            while block := rows.read(1 << 20):
                digest.update(block)
    digest.update(orjson.dumps(task["tokenizer"], option=orjson.OPT_SORT_KEYS))
    folder = Path(str(task["tokenizer"]["name"])).expanduser()
    for file in sorted(folder.glob("*.json")) + sorted(folder.glob("*.jinja")):
        digest.update(f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}".encode())
    return digest.hexdigest()[:32]
