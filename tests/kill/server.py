"""The real product: `nvtrader-rl up` in a session of its own, and the pids of its parts."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

CLI = [sys.executable, "-m", "nvtrader_rl_dagster.cli"]
_PARTS = {
    "daemon": "-m dagster._daemon run",
    "webserver": "-m dagster_webserver",
    "proxy": "-m dagster code-server start",
    "code_server": "-m dagster api grpc",
}
_LAUNCH = """mutation($p: ExecutionParams!) { launchRun(executionParams: $p) { __typename
  ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
  ... on RunConfigValidationInvalid { errors { message } } } }"""
_TERMINATE = """mutation($id: String!) { terminateRun(runId: $id, terminatePolicy: SAFE_TERMINATE) { __typename
  ... on TerminateRunFailure { message } ... on RunNotFoundError { message } ... on PythonError { message } } }"""


class Server:
    """Started, killed and started again on one port and one state folder."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = environment
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._sessions: set[int] = set()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        """Start, wait until the code location has loaded; seconds it took."""
        begun = time.monotonic()
        with self.log.open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [*CLI, "up", "--port", str(self.port)],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._sessions.add(self.pid)
        while not self.answers():
            assert self._process.poll() is None and time.monotonic() < begun + 120, self.log.read_text()[-4000:]
            time.sleep(0.3)
        return time.monotonic() - begun

    def answers(self) -> bool:
        """Whether runs can be launched: the web server is up, and the code location behind it has loaded."""
        query = "{ repositoriesOrError { __typename ... on RepositoryConnection { nodes { name } } } }"
        try:
            return bool(self.graphql(query)["repositoriesOrError"].get("nodes"))
        except (httpx.HTTPError, AssertionError):
            return False

    def up(self) -> bool:
        """Whether `nvtrader-rl up` itself still runs."""
        return self._process is not None and self._process.poll() is None

    def tree(self) -> list[psutil.Process]:
        """`nvtrader-rl up` and all that it started, run workers included; a supervisor is in another session.

        With what an earlier start has left: a code server stays until its runs have ended.
        """
        found = []
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getsid(pid) in self._sessions:
                    found.append(psutil.Process(pid))
        return found

    def part(self, name: str) -> psutil.Process:
        """One process of the server: daemon, webserver, proxy or code_server."""
        for process in self.tree():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if os.getsid(process.pid) == self.pid and _PARTS[name] in " ".join(process.cmdline()[:5]):
                    return process
        raise AssertionError(f"{name} is not running")

    def stop(self) -> None:
        """As Ctrl-C in its terminal; what does not go is killed."""
        if self.up():
            os.killpg(self.pid, signal.SIGINT)
        _, alive = psutil.wait_procs(self.tree(), timeout=20)
        for survivor in alive:
            survivor.kill()
        if self._process is not None:
            self._process.wait(10)

    def graphql(self, query: str, **variables: Any) -> Any:
        answer = httpx.post(f"{self.url}/graphql", json={"query": query, "variables": variables}, timeout=30)
        answer.raise_for_status()
        body = answer.json()
        assert "errors" not in body, body
        return body["data"]

    def launch(self, job: str, config: dict[str, Any], tags: dict[str, str]) -> str | None:
        """Launch a run as the launchpad does; its id, or None while the server or its code location is not there."""
        parameters = {
            "selector": {
                "repositoryLocationName": "nvtrader_rl_dagster",
                "repositoryName": "__repository__",
                "jobName": job,
            },
            "runConfigData": config,
            "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in tags.items()]},
        }
        try:
            answer = self.graphql(_LAUNCH, p=parameters)["launchRun"]
        except httpx.HTTPError:
            return None
        if answer["__typename"] in ("PipelineNotFoundError", "PythonError"):
            return None
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["runId"])

    def terminate(self, run_id: str) -> str:
        """Terminate a run as the UI does; the type of the answer."""
        return str(self.graphql(_TERMINATE, id=run_id)["terminateRun"]["__typename"])

    def command(self, *arguments: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run `nvtrader-rl` on the same state folder."""
        return subprocess.run(
            [*CLI, *arguments], env=self.environment, capture_output=True, text=True, timeout=seconds, check=False
        )
