# shellcheck shell=bash
# Where NeMo-RL is, or will be: pins, source tree, environment tool, interpreter. Sourced by bootstrap_nemo_rl.sh.

ENVIRONMENT_NAME=nemo_rl

# pinned KEY: a value of third_party/nemo-rl.pin.
pinned() {
  local value
  value=$(sed -n "s/^$1=//p" "$REPO/third_party/nemo-rl.pin")
  [[ -n $value ]] || die "third_party/nemo-rl.pin has no line $1=..." "restore the file: git checkout third_party/nemo-rl.pin"
  printf '%s' "$value"
}

# plain VARIABLE PATH: refuses what a file with variables cannot hold.
plain() {
  [[ $2 != *[\"\$\`\\]* ]] || die "the path $2 holds a quote, a dollar sign or a backslash" "set $1 to a plain path"
}

# Sets everything that does not depend on what is installed.
find_places() {
  URL=${NVTRADER_NEMORL_URL:-$(pinned url)}
  COMMIT=${NVTRADER_NEMORL_COMMIT:-$(pinned commit)}
  PYTHON_VERSION=$(pinned python)
  SRC=$(realpath -m -- "${NVTRADER_NEMORL_SRC:-$REPO/third_party/nemo-rl}")
  VENVS=$(realpath -m -- "${NEMO_RL_VENV_DIR:-$SRC/venvs}")
  ENV_FILE=$REPO/third_party/nemo-rl.env
  plain NVTRADER_NEMORL_SRC "$SRC"
  plain NEMO_RL_VENV_DIR "$VENVS"
  # Without it, git would take the repository around a tree that is not there yet.
  GIT_CEILING_DIRECTORIES=$(dirname -- "$SRC")
  export GIT_CEILING_DIRECTORIES
}

conda_command() { printf '%s' "${CONDA_EXE:-conda}"; }

have_conda() { command -v -- "$(conda_command)" >/dev/null; }

# Sets TOOL to conda or uv (empty: neither is here) and PY to NeMo-RL's interpreter, there or not.
find_python() {
  if [[ -z $TOOL ]]; then
    if [[ -x $SRC/.venv/bin/python ]]; then
      TOOL=uv
    elif have_conda; then
      TOOL=conda
    elif command -v uv >/dev/null; then
      TOOL=uv
    fi
  fi
  if [[ -n ${NVTRADER_NEMORL_PYTHON:-} ]]; then
    PY=$NVTRADER_NEMORL_PYTHON
  elif [[ $TOOL = conda ]]; then
    PY=$(conda_prefix)/bin/python
  else
    PY=$SRC/.venv/bin/python
  fi
  plain NVTRADER_NEMORL_PYTHON "$PY"
}

# Folder of the conda environment; the place it would get, when it is not there.
conda_prefix() {
  local prefix base
  prefix=$("$(conda_command)" env list 2>/dev/null | sed -n "s/^${ENVIRONMENT_NAME}[ *]\{1,\}//p") || prefix=
  if [[ -z $prefix ]]; then
    base=$("$(conda_command)" info --base 2>/dev/null) || base=conda
    prefix=$base/envs/$ENVIRONMENT_NAME
  fi
  printf '%s' "$prefix"
}

have_python() { [[ -n $PY && -x $PY && ! -d $PY ]]; }

# The bridge puts this folder on the PATH of a training; where else uv is, a service may not see.
have_own_uv() { [[ -x $(dirname -- "$PY")/uv ]]; }

# probe WHAT...: one line about the installed things, from NeMo-RL's interpreter. See probe.py.
probe() { "$PY" "$LIB/probe.py" "$@" 2>/dev/null || printf 'broken %s cannot run' "$PY"; }

# Compute capability of the best GPU, such as 12.1; empty without one.
gpu_capability() {
  command -v nvidia-smi >/dev/null || return 0
  { nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || true; } |
    sed -n 's/^ *\([0-9]\{1,\}\.[0-9]\) *$/\1/p' | sort -V | tail -n 1
}

# Whether the pinned torch must be replaced: Blackwell of 12.1 or newer, or the user says so.
is_blackwell() {
  local capability
  [[ $FORCE_TORCH = 0 ]] || return 0
  capability=$(gpu_capability)
  [[ -n $capability ]] && ((${capability/./} >= 121))
}
