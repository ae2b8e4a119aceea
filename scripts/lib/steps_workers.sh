# shellcheck shell=bash
# Steps that are only done when asked for: the Megatron worker, and one environment for driver and DTensor worker.
# Sourced by bootstrap_nemo_rl.sh.

MEGATRON_WORKER=nemo_rl.models.policy.workers.megatron_policy_worker.MegatronPolicyWorker
DTENSOR_WORKER=nemo_rl.models.policy.workers.dtensor_policy_worker.DTensorPolicyWorker

# Folder of the CUDA toolkit's programs; empty without one.
nvcc_folder() {
  local nvcc
  nvcc=$(command -v nvcc) || nvcc=${CUDA_HOME:-/usr/local/cuda}/bin/nvcc
  [[ ! -x $nvcc ]] || dirname -- "$nvcc"
}

state_megatron() {
  local answer python=$VENVS/$MEGATRON_WORKER/bin/python
  [[ -x $python ]] || { SAYS="the Megatron worker's environment is not built" && return 1; }
  answer=$("$python" "$LIB/probe.py" modules torch ray megatron.core megatron.bridge 2>/dev/null) || answer="broken cannot run"
  SAYS="the Megatron worker's environment: $answer"
  [[ $answer = ok* ]]
}

# NeMo-RL's own builder, so that it is what a first Megatron training would build, hours before it is needed.
do_megatron() {
  local cuda architectures
  cuda=$(nvcc_folder)
  [[ -n $cuda ]] || die "no nvcc: Megatron's extensions are compiled" \
    "install the CUDA toolkit (13.0) and put its bin on PATH, or set CUDA_HOME; DTensor trainings do not need Megatron"
  architectures=${TORCH_CUDA_ARCH_LIST:-$(gpu_capability)}
  [[ -n $architectures ]] || die "no GPU is seen, so the architecture to compile for is unknown" \
    "set TORCH_CUDA_ARCH_LIST, for a GB10: TORCH_CUDA_ARCH_LIST=12.1"
  run "is $VENVS yours?" rm -rf -- "$VENVS/$MEGATRON_WORKER"
  run "see above what did not compile; with little memory: MAX_JOBS=1" env --chdir="$SRC" \
    PATH="$cuda:$PATH:$(dirname -- "$PY")" CUDA_HOME="$(dirname -- "$cuda")" NEMO_RL_VENV_DIR="$VENVS" \
    UV_PYTHON_PREFERENCE=system UV_PYTHON="$PY" MAX_JOBS="${MAX_JOBS:-4}" \
    TORCH_CUDA_ARCH_LIST="$architectures" \
    "$PY" -m nemo_rl.utils.prefetch_venvs "$MEGATRON_WORKER"
}

state_shared_worker() {
  local link=$VENVS/$DTENSOR_WORKER
  if [[ $(realpath -m -- "$link") != "$(realpath -m -- "$(dirname -- "$PY")/..")" ]]; then
    SAYS="the DTensor worker has, or will get, an environment of its own" && return 1
  fi
  SAYS="the DTensor worker uses $PY"
}

do_shared_worker() {
  local link=$VENVS/$DTENSOR_WORKER user
  user=$(process_with "$link")
  [[ -z $user ]] || die "$link is in use by process $user" "run the step again when the training is over"
  run "" mkdir -p -- "$VENVS"
  run "is $VENVS yours?" rm -rf -- "$link"
  run "" ln -s -- "$(realpath -m -- "$(dirname -- "$PY")/..")" "$link"
}
