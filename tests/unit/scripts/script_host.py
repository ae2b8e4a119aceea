"""A machine for the scripts: a repository and a PATH of its own, with fakes of everything that installs or is big."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

REPO = Path(__file__).resolve().parents[3]
FAKES = Path(__file__).parent / "fakes"
#: Ordinary tools that the scripts may use. There is no pkill, no kill and no ray among them.
TOOLS = (
    *("bash", "env", "cat", "ls", "mkdir", "rm", "mv", "cp", "ln", "dirname", "basename", "realpath", "mktemp"),
    *("sed", "grep", "awk", "tail", "sort", "wc", "tr", "find", "timeout", "chmod"),
)
ON_PATH = ("git", "conda", "df", "uname", "nvidia-smi")
TORCH_OF_GB10 = "2.12.0+cu130"
_SPEC = importlib.util.spec_from_file_location("fake_pip", FAKES / "pip.py")
assert _SPEC and _SPEC.loader
_PIP = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_PIP)


@dataclass
class Host:
    """root: everything of this machine. upstream, commit: the repository that stands for NeMo-RL, and its pin."""

    root: Path
    upstream: Path
    commit: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def repo(self) -> Path:
        return self.root / "our repo"

    @property
    def source(self) -> Path:
        return self.repo / "third_party" / "nemo-rl"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def conda_python(self) -> Path:
        return self.state / "conda base/envs/nemo_rl/bin/python"

    def bootstrap(self, *arguments: str, code: int = 0, **variables: str) -> str:
        return self.run("bootstrap_nemo_rl.sh", *arguments, code=code, **variables)

    def run(self, script: str, *arguments: str, code: int = 0, **variables: str) -> str:
        """Output and errors of a script of the repository; its exit code must be `code`."""
        done = subprocess.run(
            ["bash", str(self.repo / "scripts" / script), *arguments],
            env={**self.environment, **variables},
            cwd=self.root,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=60,
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def calls(self, name: str, *words: str) -> list[list[str]]:
        """Calls of a fake so far that have all these words."""
        file = self.state / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        called = [line.split("\t") for line in lines]
        return [call for call in called if call[0] == name and set(words) <= set(call)]

    def forget_calls(self) -> None:
        (self.state / "calls").unlink(missing_ok=True)

    def fail(self, text: str = "") -> None:
        """From now on calls with this text fail; with no text, none does."""
        (self.state / "fail").unlink(missing_ok=True)
        if text:
            (self.state / "fail").write_text(text + "\n")

    def say(self, name: str, text: str) -> None:
        """What a fake reads, such as `capability` or `free_kb`."""
        (self.state / name).write_text(text)

    def put(self, *names: str) -> None:
        """Fakes on the PATH."""
        for name in names:
            shutil.copy(FAKES / name, self.root / "bin" / name)

    def take_away(self, *names: str) -> None:
        for name in names:
            (self.root / "bin" / name).unlink(missing_ok=True)

    def with_source(self) -> Host:
        """As after the steps source and submodules."""
        shutil.copytree(self.upstream / "checkout", self.source, symlinks=True)
        return self

    def with_package(self) -> Host:
        """As after the steps up to package."""
        self.with_source().environment_of(self.conda_python.parents[1])
        _PIP.nemo_rl(self.conda_python.parents[1] / "site", self.source)
        return self

    def with_bridge(self, yaml: str = "", row: str = "") -> None:
        """Our package, with what its console script prints."""
        (self.repo / ".venv/bin").mkdir(parents=True)
        shutil.copy(FAKES / "nvtrader-rl", self.repo / ".venv/bin/nvtrader-rl")
        self.say("dpo.yaml", yaml)
        self.say("row.jsonl", row)

    def contents(self) -> dict[str, str]:
        """Every file of this machine but the list of calls."""
        found = {}
        for file in sorted(self.root.rglob("*")):
            if file.is_symlink():
                found[str(file.relative_to(self.root))] = str(file.readlink())
            elif file.is_file() and file != self.state / "calls":
                found[str(file.relative_to(self.root))] = file.read_bytes().hex()
        return found

    def environment_of(self, folder: Path, *packages: str) -> Path:
        """A Python environment with empty packages; its interpreter."""
        for part in ("bin", "site"):
            (folder / part).mkdir(parents=True)
        shutil.copy(FAKES / "python", folder / "bin" / "python")
        for name in packages:
            (folder / "site" / name).mkdir(parents=True)
            (folder / "site" / name / "__init__.py").touch()
            (folder / "site" / name / "version.py").write_text("__version__ = '2.10.0+cu130'\ncuda = '13.0'\n")
        return folder / "bin" / "python"


def make_host(root: Path, upstream: Path, commit: str) -> Host:
    """A bare machine with git, conda and no GPU."""
    host = Host(root, upstream, commit)
    for folder in (host.repo / "third_party", host.state, root / "bin", root / "tmp", root / "people"):
        folder.mkdir(parents=True)
    shutil.copytree(REPO / "scripts", host.repo / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    pin = (REPO / "third_party" / "nemo-rl.pin").read_text()
    pin = re.sub("(?m)^url=.*", f"url={(upstream / 'RL').as_uri()}", re.sub("(?m)^commit=.*", f"commit={commit}", pin))
    (host.repo / "third_party" / "nemo-rl.pin").write_text(pin)
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, tool
        (root / "bin" / tool).symlink_to(found)
    host.put(*ON_PATH)
    host.environment = {
        "PATH": str(root / "bin"),
        "HOME": str(root / "people"),
        "TMPDIR": str(root / "tmp"),
        "FAKES": str(FAKES),
        "FAKE_STATE": str(host.state),
        "FAKE_REAL_GIT": shutil.which("git") or "git",
        "FAKE_REAL_PYTHON": sys.executable,
        "PYTHONDONTWRITEBYTECODE": "1",
        # Submodules of the small repository are local ones, which git refuses otherwise.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "protocol.file.allow",
        "GIT_CONFIG_VALUE_0": "always",
    }
    return host


def make_upstream(root: Path) -> tuple[Path, str]:
    """A folder with the repository RL that stands for NeMo-RL, and its pinned commit.

    It has a submodule in a submodule and the tag v0.7.0; `checkout` is a tree with everything at the pinned commit.
    """
    inner = _repository(root / "megatron-lm", {"megatron/core/__init__.py": ""})
    outer = _repository(root / "megatron-bridge", {"src/bridge.py": ""}, {"3rdparty/Megatron-LM": inner})
    files = {
        "nemo_rl/__init__.py": "",
        "nemo_rl/package_info.py": "MAJOR = 0\nMINOR = 6\nPATCH = 0\n",
        "examples/run_dpo.py": "import argparse\nimport nemo_rl\nargparse.ArgumentParser().parse_args()\n",
        ".gitignore": ".venv\nvenvs\n",
    }
    upstream = _repository(root / "RL", files, {"3rdparty/Megatron-Bridge": outer})
    commit = git(upstream, "rev-parse", "HEAD")
    (upstream / "nemo_rl/package_info.py").write_text("MAJOR = 0\nMINOR = 7\nPATCH = 0\n")
    git(upstream, "commit", "-qam", "0.7.0")
    git(upstream, "tag", "v0.7.0")
    checkout = root / "checkout"
    git(root, "clone", "-q", upstream.as_uri(), str(checkout))
    git(checkout, "checkout", "-q", "--detach", commit)
    git(checkout, "submodule", "--quiet", "update", "--init", "--recursive")
    return root, commit


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _repository(folder: Path, files: dict[str, str], submodules: dict[str, Path] | None = None) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name, submodule in (submodules or {}).items():
        git(folder, "submodule", "--quiet", "add", submodule.as_uri(), name)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder
