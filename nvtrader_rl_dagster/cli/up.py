"""`nvtrader-rl up`: the Dagster web UI and daemon on a persistent home."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import typer

from nvtrader_rl_dagster.cli.console import console
from nvtrader_rl_dagster.cli.server_watch import CodeServerWatch
from nvtrader_rl_dagster.home import HOME_VARIABLE, Home

_LOOK_SECONDS = 3.0
_PR_SET_PDEATHSIG = 1  # prctl(2)


def up(
    port: int = typer.Option(3000, help="Port of the web UI."),
    host: str = typer.Option("127.0.0.1", help="Address to listen on. The UI has no login."),
) -> None:
    """Start the web UI and the daemon on the same data; stop with Ctrl-C."""
    home = prepare_home()
    console.print(f"State: {home.root}\nUI:    http://{host}:{port}", markup=False)
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(workspace_file()), "-h", host, "-p", str(port)]
    raise typer.Exit(_serve(command))


def _serve(command: list[str]) -> int:
    """Run `dagster dev` to its end and keep its code server alive. Our own end, however it comes, is its end."""
    server = subprocess.Popen(command, preexec_fn=_interrupted_with_parent)  # noqa: PLW1509 (no thread yet)

    def pass_on(*_: object) -> None:
        server.send_signal(signal.SIGINT)

    # Ctrl-C reaches the whole group of the terminal; a service manager signals us alone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, pass_on)
    watch = CodeServerWatch(server.pid)
    while True:
        try:
            return server.wait(_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            for _ in watch.look():
                console.print("the code server died; starting it again")


def _interrupted_with_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)


def prepare_home() -> Home:
    """Create the state folder and a persistent DAGSTER_HOME with the packaged settings; export both.

    A `dagster.yaml` that is already there is the user's and stays. Without a persistent home, Dagster
    would forget cursors and run keys at each stop and train twice on the same feedback.
    """
    home = Home.from_env()
    home.dagster_home.mkdir(parents=True, exist_ok=True)
    settings = home.dagster_home / "dagster.yaml"
    if not settings.exists():
        settings.write_text(packaged("dagster.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    os.environ[HOME_VARIABLE] = str(home.root)
    os.environ["DAGSTER_HOME"] = str(home.dagster_home.resolve())
    return home


def workspace_file() -> Path:
    """The packaged workspace: one location with a fixed name."""
    return packaged("workspace.yaml")


def packaged(name: str) -> Path:
    """A file of the installed package's `instance` folder."""
    return Path(str(files("nvtrader_rl_dagster") / "instance" / name))
