"""Whether the state folder and DAGSTER_HOME are still there next week."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from nvtrader_rl_dagster.doctor.finding import Finding, error, existing_parent, ok, warning
from nvtrader_rl_dagster.home import HOME_VARIABLE, Home

_TEMPORARY = (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm", "/run")
_IN_MEMORY = {"tmpfs", "ramfs"}
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "glusterfs", "ceph", "beegfs", "gpfs", "afs"}
_NETWORK_FUSE = ("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse")
#: The folder that `dagster dev` makes, and deletes at its end, when DAGSTER_HOME is not set.
_DAGSTER_TEMPORARY = ".tmp_dagster_home_"
_MOVE = "set {variable} to an absolute path on a local disk and move the folder there"


def check_home(home: Home) -> Iterator[Finding]:
    """The state folder: feedback, runs, the champion."""
    yield from _folder("state folder", home.root, HOME_VARIABLE, "feedback and models would be lost")


def check_dagster_home(home: Home) -> Iterator[Finding]:
    """DAGSTER_HOME: run history, cursors, run keys."""
    given = os.environ.get("DAGSTER_HOME")
    if given and not Path(given).is_absolute():
        yield error(
            "DAGSTER_HOME", f"DAGSTER_HOME={given} is relative; Dagster refuses it", "set an absolute path, or unset it"
        )
        return
    yield from _folder("DAGSTER_HOME", home.dagster_home, "DAGSTER_HOME", "the history of all runs would be lost")


def _folder(check: str, path: Path, variable: str, loss: str) -> Iterator[Finding]:
    path = path.absolute()
    there = existing_parent(path)
    kind = filesystem(there)
    move = _MOVE.format(variable=variable)
    if why := _temporary(path, kind):
        yield error(check, f"{path} is temporary ({why}): {loss}", move)
    elif kind in _NETWORK or kind.startswith(_NETWORK_FUSE):
        yield error(check, f"{path} is on a network file system ({kind}), where SQLite and file locks fail", move)
    elif not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        yield error(check, f"{there} cannot be written to", f"give this user the rights, or {move}")
    elif there != path:
        yield warning(check, f"{path} is not there yet", "`nvtrader-rl up` creates it")
    else:
        yield ok(check, f"{path} ({kind or 'unknown file system'})")


def filesystem(path: Path) -> str:
    """Type of the file system that an existing path is on, such as `ext4`; empty when unknown."""
    import psutil

    resolved = path.resolve()
    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    return next((mounts[folder] for folder in (resolved, *resolved.parents) if folder in mounts), "")


def _temporary(path: Path, kind: str) -> str:
    if any(part.startswith(_DAGSTER_TEMPORARY) for part in path.parts):
        return "made by dagster dev without DAGSTER_HOME"
    if kind in _IN_MEMORY:
        return f"in memory, {kind}"
    return next((f"below {base}" for base in _TEMPORARY if Path(base) in path.parents), "")
