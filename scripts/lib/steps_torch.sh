# shellcheck shell=bash
# Steps: torch for Blackwell, and what is said about Transformer Engine. Sourced by bootstrap_nemo_rl.sh.

state_torch() {
  local answer version capability
  capability=$(gpu_capability)
  if ! is_blackwell && [[ -z $capability ]]; then
    SAYS="no GPU is seen, so NeMo-RL's own torch stays; --force-torch installs $(pinned torch)+$(pinned cuda)" && return 2
  fi
  have_python || { SAYS="no environment yet" && return 1; }
  answer=$(probe torch)
  version=${answer#* }
  [[ $answer = cuda* || $answer = cpu* ]] || { SAYS="$version; the step package brings it" && return 1; }
  if is_blackwell; then
    [[ $version = "$(pinned torch)+$(pinned cuda)" ]] || { SAYS="torch $version is there; Blackwell needs $(pinned torch)+$(pinned cuda)" && return 1; }
    SAYS="torch $version"
  elif [[ $answer = cpu* ]]; then
    SAYS="torch $version has no CUDA, and a GPU is here" && return 1
  else
    SAYS="the GPU's capability $capability is below 12.1, so torch $version stays" && return 2
  fi
}

# pip then says that nemo-rl wants another torch. That is meant: NeMo-RL's pin stops at capability 12.0.
do_torch() {
  local version wanted
  wanted=("torch==$(pinned torch)+$(pinned cuda)" "torchvision==$(pinned torchvision)")
  if ! is_blackwell; then # the pinned release, but built for CUDA
    [[ $DRY_RUN = 0 ]] || have_python || return 0
    version=$(probe torch)
    [[ $version = cpu* ]] || die "$SAYS" "run the script without --only"
    version=${version#* }
    wanted=("torch==${version%%+*}+$(pinned cuda)")
  fi
  run "$PIP_REMEDY" "$PY" -m pip install --disable-pip-version-check -q --index-url "$(pinned torch_index)" "${wanted[@]}"
}

state_capability() {
  [[ -n $(gpu_capability) ]] || { SAYS="no GPU is seen" && return 2; }
  have_python || { SAYS="no environment yet" && return 1; }
  local answer
  answer=$(probe capability)
  SAYS=${answer#* }
  [[ $answer = ok* ]]
}

do_capability() {
  [[ $DRY_RUN = 1 ]] || die "$SAYS" "scripts/bootstrap_nemo_rl.sh --only torch --force-torch, and a driver for CUDA 13 (nvidia-smi shows it)"
}

state_transformer_engine() {
  SAYS="'Transformer Engine and Apex are not installed' is a note, no error: Megatron-Core falls back to torch"
  have_python || return 2
  [[ $(probe modules transformer_engine) = ok* ]] || return 2
  SAYS="Transformer Engine is installed"
}

do_transformer_engine() { :; }
