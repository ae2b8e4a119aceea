"""What can go from the state folder: old runs, their scores, and data sets that nobody points at any more."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nvtrader_rl_dagster.evaluation.champion import ChampionStore
from nvtrader_rl_dagster.files import current
from nvtrader_rl_dagster.home import Home
from nvtrader_rl_dagster.nemo_rl.runs import RunRecord, RunState, RunStore

#: A removal that was interrupted leaves a folder with this prefix, which nothing else reads.
_PRUNED = ".pruned-"
_STAGING = ".staging-"
_DAY = 86_400.0
#: A step that read `current.json` before it changed may still read the folder that it pointed at.
_SETTLED_SECONDS = 600.0
_WORD = re.compile(r"[\w-]+")


@dataclass(frozen=True)
class Removal:
    """A folder to remove, its size and the reason."""

    path: Path
    bytes: int
    why: str


def plan(home: Home, keep: int = 10, older_than_days: float = 0.0) -> list[Removal]:
    """What may be removed now. Nothing is changed.

    Of the ended runs the newest `keep` stay, and those that ended within `older_than_days`. Always kept: runs
    that go on, the newest run and the newest succeeded one of each feedback store and algorithm and those that
    trained furthest (the trigger reads how far), every run in the champion's history, and what the config of a kept
    run names. With a run go its scores. A version of the pairs or of a data set goes when neither `current.json` nor
    a kept run or score names it.
    """
    before = time.time() - older_than_days * _DAY
    champions = _champions(home)
    kept, old = _divide(home, keep, before, champions)
    removals = list(_leftovers(home))
    used = set().union(*kept.values())
    for folder in _folders(home.evals):
        run_id, scores_of_a_run, _ = folder.name.partition("-step_")
        gone = scores_of_a_run and run_id not in kept.keys() | champions
        if gone and (run_id in old or _changed(folder) <= before):
            removals.append(_removal(folder, f"scores of {run_id}, which is not kept"))
        else:
            used |= _named(folder, "score.yaml", "scores.json")
    for root in _folders(home.root / "datasets"):
        unused = _unused_versions(root, used, before)
        removals += unused
        # A data set names the pairs that it was made from.
        for folder in set(_folders(root)) - {removal.path for removal in unused}:
            used |= _named(folder, "manifest.json")
    removals += _unused_versions(home.pairs, used, before)
    removals += [_removal(home.runs / run_id, f"run ended {ended}") for run_id, ended in old.items()]
    return removals


def execute(removals: Iterable[Removal]) -> int:
    """Remove them and return the bytes that this freed.

    Each folder is renamed first, so that a crash leaves no half-deleted run behind; the next plan holds the rest.
    """
    freed = 0
    for removal in removals:
        trash = removal.path
        with contextlib.suppress(FileNotFoundError):  # another prune was faster
            if not trash.name.startswith(_PRUNED):
                trash = trash.rename(trash.with_name(_PRUNED + trash.name))
            shutil.rmtree(trash)
            freed += removal.bytes
    return freed


def _divide(home: Home, keep: int, before: float, champions: set[str]) -> tuple[dict[str, set[str]], dict[str, str]]:
    """Kept runs with the names of all that they depend on, and old runs with the time of their end."""
    records = [directory.record() for directory in RunStore(home.runs).all()]
    ended = [record for record in records if record.ended_for_good]
    needed = champions | _watermarks(records) | {record.run_id for record in ended[:keep]}
    old = {
        record.run_id: record for record in ended if record.run_id not in needed and _seconds(record.ended) <= before
    }
    kept = {r.run_id: _dependencies(home.runs / r.run_id, r) for r in records if r.run_id not in old}
    # A kept run may have started from an old one's checkpoint.
    waiting = list(kept.values())
    while waiting:
        for name in waiting.pop() & old.keys():
            kept[name] = _dependencies(home.runs / name, old.pop(name))
            waiting.append(kept[name])
    return kept, {run_id: record.ended or "" for run_id, record in old.items()}


def _watermarks(records: list[RunRecord]) -> set[str]:
    """Of each feedback store and algorithm the newest run, the newest that succeeded, and those that got furthest."""
    found = set()
    for group in {(record.ledger_id, record.algo) for record in records}:
        mine = [record for record in records if (record.ledger_id, record.algo) == group]
        for some in (mine, [record for record in mine if record.state is RunState.SUCCEEDED]):
            if some:
                furthest = max(some, key=lambda record: record.trained_through_seq or 0)
                found |= {some[0].run_id, furthest.run_id}
    return found


def _champions(home: Home) -> set[str]:
    """Runs of all champions there ever were: a rollback goes back to them."""
    changes = ChampionStore(home.champion).history()
    ids = {change.checkpoint_id for change in changes} | {change.replaced for change in changes}
    return {checkpoint_id.partition("/")[0] for checkpoint_id in ids if checkpoint_id}


def _dependencies(folder: Path, record: RunRecord) -> set[str]:
    # The record names the data before the config is written.
    return {record.data_hash or "", *_named(folder, "config.yaml")}


def _unused_versions(root: Path, used: set[str], before: float) -> list[Removal]:
    newest = current(root)
    if newest is None or _changed(root / "current.json") > time.time() - _SETTLED_SECONDS:
        return []
    return [
        _removal(folder, "no kept run uses this version")
        for folder in _folders(root)
        if folder.name not in used
        and folder != newest.path
        and (folder / "manifest.json").exists()
        and _changed(folder / "manifest.json") <= before
    ]


def _leftovers(home: Home) -> Iterator[Removal]:
    """Folders that an interrupted prune, or a publication killed more than a day ago, left behind."""
    for root in (home.runs, home.evals, home.pairs, *_folders(home.root / "datasets")):
        for folder in root.iterdir() if root.is_dir() else ():
            if folder.name.startswith(_PRUNED):
                yield _removal(folder, "left by an interrupted prune")
            elif folder.name.startswith(_STAGING) and _changed(folder) < time.time() - _DAY:
                yield _removal(folder, "left by an interrupted publication")


def _folders(root: Path) -> Iterator[Path]:
    if root.is_dir():
        yield from sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))


def _named(folder: Path, *files: str) -> set[str]:
    """Every word of these files: parts of paths, ids and hashes among them."""
    texts = [(folder / name).read_text(encoding="utf-8") for name in files if (folder / name).exists()]
    return {word for text in texts for word in _WORD.findall(text)}


def _removal(path: Path, why: str) -> Removal:
    return Removal(path, size_of(path), why)


def size_of(path: Path) -> int:
    """Bytes of the files below a folder, links not followed."""
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())


def _changed(path: Path) -> float:
    return path.stat().st_mtime


def _seconds(moment: str | None) -> float:
    return datetime.fromisoformat((moment or "").replace("Z", "+00:00")).timestamp()
