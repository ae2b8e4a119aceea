"""Known failures of an installation: interpreter, torch, submodules, worker environments."""

from __future__ import annotations

from nvtrader_rl_dagster.nemo_rl.diagnosis.failure import Kind, KnownFailure

_BOOTSTRAP = "bash scripts/bootstrap_nemo_rl.sh"

INSTALL = (
    KnownFailure(
        code="torch_cpu",
        title="torch without CUDA",
        shows="Torch not compiled with CUDA enabled · Distributed package doesn't have NCCL built in · torch "
        "2.10.0+cpu",
        meaning="pip resolved a CPU build of torch (2.10.0+cpu), so no worker can use the GPU.",
        handled="The bootstrap installs torch 2.12+cu130 over it; `nvtrader-rl doctor` shows the build that is "
        "installed.",
        remedy=f"{_BOOTSTRAP} --only torch; with --share-worker the DTensor worker uses the same torch.",
        raised=(
            r"Torch not compiled with CUDA enabled",
            r"Distributed package doesn't have NCCL built in",
        ),
        gotcha=1,
    ),
    KnownFailure(
        code="cuda_capability",
        title="torch has no kernels for this GPU",
        shows="no kernel image is available for execution on the device · Found GPU0 NVIDIA GB10 which is of cuda "
        "capability 12.1. Minimum and Maximum cuda capability supported by this version of PyTorch is (8.0) - (12.0)",
        meaning="torch 2.10 was built for capabilities up to 12.0 and Blackwell's GB10 is 12.1 (sm_121). The range "
        "alone is a warning, and much runs in spite of it; the missing kernel or assembler is what ends a run.",
        handled="The bootstrap installs torch 2.12+cu130, which knows sm_121.",
        remedy=f"{_BOOTSTRAP} --only torch; with --share-worker the DTensor worker uses the same torch.",
        raised=(
            r"no kernel image is available for execution on the device",
            r"ptxas fatal\s*:\s*Value 'sm_\w+' is not defined",
        ),
        gotcha=2,
    ),
    KnownFailure(
        code="transformer_engine_absent",
        title="Transformer Engine and Apex are not there",
        shows="Transformer Engine and Apex are not installed. Falling back to Torch optimizers.",
        meaning="A warning of Megatron-Core, once per process. It uses torch's own attention and optimizers instead.",
        handled="The diagnosis never takes it for the reason of a failure.",
        remedy="Nothing. Install Transformer Engine only for FP8 fused attention.",
        printed=("Transformer Engine and Apex are not installed",),
        kind=Kind.INFORMATIONAL,
        gotcha=3,
    ),
    KnownFailure(
        code="uv_no_interpreter",
        title="uv does not find Python 3.13.13",
        shows="No interpreter found for Python 3.13.13 in managed installations",
        meaning="uv looks only for Pythons that it manages itself and may not download one, so no worker environment "
        "is made.",
        handled="The bridge sets UV_PYTHON_PREFERENCE=system and UV_PYTHON for the training.",
        remedy=f"{_BOOTSTRAP} --only environment; NVTRADER_NEMORL_PYTHON must name its interpreter.",
        printed=("No interpreter found for Python",),
        gotcha=4,
    ),
    KnownFailure(
        code="workspace_member",
        title="NeMo-RL was cloned without its submodules",
        shows="`nemo-gym` references a workspace in `tool.uv.sources` (e.g., `nemo-gym = { workspace = true }`), but "
        "is not a workspace member",
        meaning="uv reads the whole workspace of the tree, and the folders of Gym, Automodel or Megatron-Bridge are "
        "empty.",
        handled="The bootstrap clones with --recurse-submodules --shallow-submodules; `nvtrader-rl doctor` names what "
        "is missing.",
        remedy=f"{_BOOTSTRAP} --only submodules.",
        printed=(
            "`nemo-gym` references a workspace",
            "`megatron-core` references a workspace",
            "Distribution not found at: file://",
        ),
        gotcha=5,
    ),
    KnownFailure(
        code="empty_worker_venv",
        title="a half-built worker environment is used again",
        shows="ModuleNotFoundError: No module named 'ray' from default_worker.py · vLLM is not installed. Please "
        "check that the py_executable in the runtime_env … covers the vllm dependency",
        meaning="An earlier build ended before its packages were there. NeMo-RL takes an environment as finished as "
        "soon as it has a bin/python.",
        handled="`nvtrader-rl doctor` lists worker environments without packages.",
        remedy=f"{_BOOTSTRAP} --only venvs removes it, and the next run builds it again.",
        raised=(
            r"^ModuleNotFoundError: No module named 'ray'",
            r"^ImportError: vLLM is not installed\. Please check that the py_executable",
        ),
        gotcha=6,
    ),
    KnownFailure(
        code="uv_missing",
        title="uv is not on the PATH",
        shows="FileNotFoundError: [Errno 2] No such file or directory: 'uv'",
        meaning="NeMo-RL builds an environment for each kind of worker with uv.",
        handled="The bootstrap installs it.",
        remedy=f"{_BOOTSTRAP} --only uv.",
        raised=(r"^FileNotFoundError: .*No such file or directory: 'uv'",),
    ),
    KnownFailure(
        code="lock_outdated",
        title="uv.lock does not fit pyproject.toml",
        shows="The lockfile at `uv.lock` needs to be updated, but `--locked` was provided",
        meaning="Something in the tree was changed, and workers are built from the lock file only.",
        remedy=f"Undo the change; {_BOOTSTRAP} --only source checks the pinned commit out.",
        printed=("The lockfile at `uv.lock` needs to be updated",),
    ),
    KnownFailure(
        code="cuda_toolkit_missing",
        title="no CUDA compiler",
        shows="nvcc was not found · CUDA_HOME environment variable is not set · TORCH_CUDA_ARCH_LIST is not set",
        meaning="A package with CUDA sources is compiled for the worker environment, and the CUDA toolkit is not "
        "there.",
        remedy="Install the CUDA toolkit, with nvcc on the PATH; set TORCH_CUDA_ARCH_LIST=12.1 for a GB10. Only "
        "Megatron, vLLM and the v2 worker need it.",
        raised=(
            r"CUDA_HOME environment variable is not set",
            r"^RuntimeError: TORCH_CUDA_ARCH_LIST is not set",
            r"nvcc was not found",
        ),
        printed=("CUDA_HOME environment variable is not set",),
    ),
    KnownFailure(
        code="worker_venv_build",
        title="a worker environment could not be built",
        shows="× Failed to build · × Failed to download · Command '['uv', 'sync', …]' returned non-zero exit status",
        meaning="uv could not fetch or compile a package of the environment that a worker runs in. What it built is "
        "left behind.",
        remedy=f"Read what uv printed above this line; then {_BOOTSTRAP} --only venvs, with network access.",
        raised=(r"^subprocess\.CalledProcessError: Command '\['uv',", r"^subprocess\.CalledProcessError: .*'--locked'"),
        printed=("Failed to build `", "Failed to download `", "Failed to fetch: `", "Failed to download and build `"),
        kind=Kind.SYMPTOM,
    ),
    KnownFailure(
        code="megatron_missing",
        title="Megatron is not importable",
        shows="ModuleNotFoundError: No module named 'megatron' · No module named 'megatron.core'",
        meaning="The scripts of NeMo-RL 0.6.0 import megatron.core at start, also for a training that does not use "
        "it. It comes from a submodule.",
        handled="The bootstrap fetches the submodules; preflight refuses a tree without them.",
        remedy=f"{_BOOTSTRAP} --only submodules; for Megatron recipes also --with-megatron.",
        raised=(r"^(ModuleNotFound|Import)Error: .*'?megatron(\.\w+)*'?",),
    ),
    KnownFailure(
        code="package_missing",
        title="a package is missing in NeMo-RL's environment",
        shows="ModuleNotFoundError: No module named …",
        meaning="The interpreter that NVTRADER_NEMORL_PYTHON names, or a worker environment, is not NeMo-RL's or not "
        "complete. PyPI's `nemo-rl` 0.0.0 is an empty placeholder.",
        handled="`nvtrader-rl doctor --nemo-rl` lists what is missing, and says so when it finds the placeholder.",
        remedy=f"{_BOOTSTRAP} --only placeholder,package; nvtrader-rl doctor --nemo-rl shows what is left.",
        raised=(r"^ModuleNotFoundError: No module named",),
    ),
    KnownFailure(
        code="gpu_driver",
        title="no usable NVIDIA driver",
        shows="Found no NVIDIA driver on your system · The NVIDIA driver on your system is too old · No CUDA GPUs are "
        "available · NVML Shared Library Not Found",
        meaning="torch or NVML cannot reach the GPU: no driver, one that is older than the CUDA build of torch, or a "
        "container without the GPU.",
        handled="`nvtrader-rl doctor` asks nvidia-smi and torch.",
        remedy="Run nvidia-smi; install or restart the driver (580 or newer for cu130), or start the container with "
        "the GPU.",
        raised=(
            r"Found no NVIDIA driver on your system",
            r"The NVIDIA driver on your system is too old",
            r"No CUDA GPUs are available",
            r"CUDA driver version is insufficient for CUDA runtime version",
            r"CUDA unknown error - this may be due to an incorrectly set up environment",
            r"NVML Shared Library Not Found",
            r"Failed to initialize NVML",
            r"Driver/library version mismatch",
            r"libcuda\.so\.1: cannot open shared object file",
        ),
    ),
    KnownFailure(
        code="python_finalization",
        title="an error while Python shuts down",
        shows="PythonFinalizationError: preexec_fn not supported at interpreter shutdown",
        meaning="Python 3.13. A destructor of NeMo-RL starts Ray again while the interpreter closes. It happens after "
        "the training failed, often because of the configuration or the rows.",
        handled="The diagnosis passes over it and reports the error above it.",
        remedy="Look further up in the log for the first error.",
        raised=(r"^PythonFinalizationError",),
        kind=Kind.NOISE,
        gotcha=10,
    ),
)
