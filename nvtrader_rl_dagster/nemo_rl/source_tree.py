"""NeMo-RL's source tree: version, commit and submodules, read without running anything of it."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from nvtrader_rl_dagster.nemo_rl.versions import version_of

_PART = re.compile(r"^(MAJOR|MINOR|PATCH|PRE_RELEASE)\s*=\s*[\"']?([^\"'\s]*)", re.MULTILINE)
_TIMEOUT_SECONDS = 10


@dataclass(frozen=True)
class SourceTree:
    """version: what the tree says, None when it is none. release: the supported one that it follows, None likewise.

    commit: of git's HEAD, None when it is no checkout. submodules: path below the tree to whether its files are there.
    problem: what is wrong, with the remedy; empty when nothing is.
    """

    path: Path
    version: str | None
    release: str | None
    commit: str | None
    submodules: dict[str, bool]
    problem: str = ""


def read_source_tree(path: Path) -> SourceTree:
    """What is in the folder, there or not."""
    release, problem = None, ""
    try:
        release = version_of(path)
    except ValueError as error:
        problem = str(error)
    return SourceTree(path, _version(path), release, _commit(path), submodules(path), problem)


def _version(tree: Path) -> str | None:
    try:
        parts = dict(_PART.findall((tree / "nemo_rl" / "package_info.py").read_text(encoding="utf-8")))
        return ".".join(parts[name] for name in ("MAJOR", "MINOR", "PATCH")) + parts.get("PRE_RELEASE", "")
    except (OSError, UnicodeDecodeError, KeyError):
        return None


def _commit(tree: Path) -> str | None:
    if not (tree / ".git").exists():  # git would take a repository around it
        return None
    command = ["git", "-C", str(tree), "rev-parse", "HEAD"]
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def submodules(tree: Path) -> dict[str, bool]:
    """Path of each submodule below the tree, and whether its files are there."""
    parser = configparser.ConfigParser()
    try:
        parser.read_string((tree / ".gitmodules").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return {}
    paths = [parser[section]["path"] for section in parser.sections() if "path" in parser[section]]
    return {path: any((tree / path).glob("*")) for path in paths}
