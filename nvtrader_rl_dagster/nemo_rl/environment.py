"""The environment of a trainer process: what it may see of ours and what it is told. Everything else stays here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

#: Names that a user wants passed on as well, separated by commas.
PASS_VARIABLE = "NVTRADER_NEMORL_PASS_ENV"
#: Folders with a user's own rewards and environments, for NeMo-RL's Python.
PATH_VARIABLE = "NVTRADER_NEMORL_PYTHONPATH"
#: What makes our package importable in NeMo-RL's Python, without the packages that are installed beside it.
DRIVER_PATH = Path(__file__).parent / "driver" / "path"

#: Allowed in every trainer. What is left out on purpose: whatever changes the modules that Python imports, and what
#: would lead Ray to another cluster or job.
_NAMES = frozenset(
    (
        # who and where
        *("HOME", "USER", "LOGNAME", "PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
        # libraries, compilers, and how wheels are built
        *("LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
        *("CC", "CXX", "MAX_JOBS", "MALLOC_ARENA_MAX", "TOKENIZERS_PARALLELISM"),
        # certificates and proxies
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        # Python and Ray
        *("PYTHONHASHSEED", "PYTHONFAULTHANDLER", "PYTHONDONTWRITEBYTECODE"),
        *("RAY_DEDUP_LOGS", "RAY_COLOR_PREFIX", "RAY_BACKEND_LOG_LEVEL", "RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE"),
        *("RAY_memory_usage_threshold", "RAY_memory_monitor_refresh_ms"),
        # trackers; their keys only by name
        *("WANDB_MODE", "WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_PROJECT", "WANDB_ENTITY", "WANDB_BASE_URL"),
        *("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID", "MLFLOW_RUN_NAME"),
        # where the embedded trainer keeps the models that it builds
        "NVTRADER_RL_CACHE",
    )
)
_PREFIXES = (
    *("LC_", "CUDA_", "CUDNN_", "CUBLAS_", "NVIDIA_", "NCCL_", "GLOO_", "UCX_", "NVTE_", "NVCC_", "CMAKE_"),
    *("TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "TRITON_", "FLASHINFER_", "VLLM_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_"),
    *("HF_", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_", "UV_", "NRL_", "NEMO_RL_", "NEMO_GYM_"),
)
#: Of those prefixes, what names our own project to uv.
_NOT = frozenset(
    ("UV_PROJECT", "UV_PROJECT_ENVIRONMENT", "UV_WORKING_DIRECTORY", "UV_ENV_FILE", "UV_RUN_RECURSION_DEPTH")
)
_SECRET_NAME = re.compile(
    r"(^|_)(TOKENS?|KEYS?|AUTH|PWD|PASS|PAT|JWT)(_|$)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|APIKEY|COOKIE", re.IGNORECASE
)
_URL_WITH_USER = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s?#]*@", re.IGNORECASE)
#: What we decide; naming one of these would have no effect.
_OURS = frozenset(
    (
        *("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONUTF8", "UV_PYTHON", "UV_PYTHON_PREFERENCE"),
        *("RAY_ADDRESS", "RAY_TMPDIR", "RAY_USAGE_STATS_ENABLED", "VIRTUAL_ENV", "CONDA_PREFIX"),
    )
)


def nemo_rl_environment(
    parent: Mapping[str, str], python: str, tree: Path, passed: Iterable[str] = ()
) -> dict[str, str]:
    """The whole environment of a NeMo-RL process, and so of its Ray workers.

    parent: our own. passed: names of variables that it gets besides the allow-list. The hub is off unless the parent
    says `HF_HUB_OFFLINE=0` (and `HF_DATASETS_OFFLINE=0`); wandb is off line unless its key is passed. Raises
    `ValueError` for a name that cannot be passed.
    """
    environment = allowed(parent, passed)
    folder = Path(python).parent
    environment |= {
        "PATH": os.pathsep.join([str(folder), parent.get("PATH") or os.defpath]),
        "PYTHONPATH": os.pathsep.join([str(DRIVER_PATH), *filter(None, [parent.get(PATH_VARIABLE)])]),
        "PYTHONUNBUFFERED": "1",
        # Its scripts print emoji, whatever the locale.
        "PYTHONUTF8": "1",
        # Without these uv looks for a Python of its own, and finds none on a machine that must not download one.
        "UV_PYTHON_PREFERENCE": "system",
        "UV_PYTHON": python,
        "RAY_USAGE_STATS_ENABLED": "0",
        "NEMO_RL_VENV_DIR": parent.get("NEMO_RL_VENV_DIR") or str(tree / "venvs"),
        "HF_HUB_OFFLINE": parent.get("HF_HUB_OFFLINE") or "1",
        "HF_DATASETS_OFFLINE": parent.get("HF_DATASETS_OFFLINE") or "1",
    }
    if "WANDB_API_KEY" not in environment:
        environment["WANDB_MODE"] = "offline"
    if (folder.parent / "pyvenv.cfg").exists():
        environment["VIRTUAL_ENV"] = str(folder.parent)
    elif (folder.parent / "conda-meta").exists():
        environment["CONDA_PREFIX"] = str(folder.parent)
    return environment


def embedded_environment(parent: Mapping[str, str], threads: int, passed: Iterable[str] = ()) -> dict[str, str]:
    """The whole environment of the embedded trainer: our own Python, no hub, threads that yield to neighbours.

    threads: of OpenMP; 0 leaves the number to it. Raises as `nemo_rl_environment`.
    """
    environment = allowed(parent, passed)
    environment |= {
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # Spinning OpenMP barriers made two threads many times slower beside a busy neighbour.
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    if path := parent.get("PYTHONPATH"):
        environment["PYTHONPATH"] = path
    if threads:
        environment["OMP_NUM_THREADS"] = str(threads)
    return environment


def allowed(parent: Mapping[str, str], passed: Iterable[str] = ()) -> dict[str, str]:
    """The parent's variables on the allow-list that hold no credentials, and those that are named."""
    named = _named(parent, passed)
    return {n: v for n, v in parent.items() if n in named or (_listed(n) and not _secret(n, v))}


def withheld(parent: Mapping[str, str], passed: Iterable[str] = ()) -> list[str]:
    """Names on the allow-list that stay here because they hold credentials: a token, or a proxy with a password."""
    named = _named(parent, passed)
    return sorted(n for n, v in parent.items() if n not in named and _listed(n) and _secret(n, v))


def _named(parent: Mapping[str, str], passed: Iterable[str]) -> set[str]:
    named = {*passed, *filter(None, (name.strip() for name in parent.get(PASS_VARIABLE, "").split(",")))}
    if ours := sorted(named & _OURS):
        remedy = f"put folders for NeMo-RL's Python into {PATH_VARIABLE}" if "PYTHONPATH" in ours else "leave it out"
        raise ValueError(f"{', '.join(ours)} cannot be passed to a trainer, the bridge sets it; {remedy}")
    return named


def _listed(name: str) -> bool:
    return name in _NAMES or (name.startswith(_PREFIXES) and name not in _OURS | _NOT)


def _secret(name: str, value: str) -> bool:
    return bool(_SECRET_NAME.search(name) or _URL_WITH_USER.search(value))
