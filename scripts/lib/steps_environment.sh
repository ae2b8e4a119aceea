# shellcheck shell=bash
# Steps: NeMo-RL's Python environment and what is installed in it. Sourced by bootstrap_nemo_rl.sh.

PIP_REMEDY="is the network there, and is there room on the disk? Run the script again: it goes on where it stopped"

python_version() { "$PY" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null; }

state_environment() {
  local version
  have_python || { SAYS="no interpreter at $PY" && return 1; }
  version=$(python_version) || version=unknown
  # NeMo-RL asks for 3.13.13 or newer; its 0.7.0 for less than 3.14.
  if [[ $version != "${PYTHON_VERSION%.*}".* ]] || ((${version##*.} < ${PYTHON_VERSION##*.})); then
    SAYS="$PY is Python $version; NeMo-RL needs $PYTHON_VERSION" && return 1
  fi
  SAYS="Python $version at $PY"
}

do_environment() {
  [[ -z ${NVTRADER_NEMORL_PYTHON:-} ]] || die "NVTRADER_NEMORL_PYTHON: $SAYS" "unset it, or make that environment first"
  if have_python; then
    local removal="rm -rf -- '$SRC/.venv'"
    [[ $TOOL = uv ]] || removal="conda env remove -n $ENVIRONMENT_NAME"
    die "$SAYS" "remove that environment and run the script again: $removal"
  fi
  if [[ $TOOL = conda ]]; then
    run "$PIP_REMEDY; --uv uses uv instead of conda" "$(conda_command)" create -y -q -n "$ENVIRONMENT_NAME" \
      --override-channels -c conda-forge "python=$PYTHON_VERSION" pip
  else
    [[ ! -e $SRC/.venv ]] || run "" rm -rf -- "$SRC/.venv" # one that broke off
    run "an old uv does not know Python $PYTHON_VERSION: pip install --upgrade uv" \
      uv venv -q --seed --python "$PYTHON_VERSION" "$SRC/.venv"
  fi
  [[ $DRY_RUN = 1 ]] || find_python
}

state_placeholder() {
  have_python || { SAYS="no environment yet" && return 2; }
  SAYS=$(probe package "$SRC" "$COMMIT")
  [[ $SAYS != placeholder* ]] || { SAYS="${SAYS#* }: nothing can be trained with it" && return 1; }
  SAYS="PyPI's empty nemo-rl 0.0.0 is not installed"
  return 0
}

do_placeholder() { run "" "$PY" -m pip uninstall -y nemo-rl; }

state_package() {
  have_python || { SAYS="no environment yet" && return 1; }
  local answer commit
  commit=$(head_commit) || commit=$COMMIT
  answer=$(probe package "$SRC" "$commit")
  SAYS=${answer#* }
  [[ $answer = ok* ]]
}

# Editable: an ordinary install of NeMo-RL leaves its sub-packages out, and it looks for 3rdparty/ beside itself.
do_package() {
  run "$PIP_REMEDY" "$PY" -m pip install --disable-pip-version-check -q -e "$SRC"
}

state_uv() {
  have_python || { SAYS="no environment yet" && return 1; }
  have_own_uv || { SAYS="no uv beside $PY; NeMo-RL makes its workers' environments with it" && return 1; }
  have_content "$ENV_FILE" "$(env_content)" || { SAYS="$ENV_FILE is not up to date" && return 1; }
  SAYS="UV_PYTHON_PREFERENCE=system UV_PYTHON=$PY, in $ENV_FILE"
}

do_uv() {
  have_own_uv || run "$PIP_REMEDY" "$PY" -m pip install --disable-pip-version-check -q uv
  write_file "$ENV_FILE" "$(env_content)"
}

# For shells (set -a; . FILE; set +a) and for systemd's EnvironmentFile.
env_content() {
  printf '# Written by scripts/bootstrap_nemo_rl.sh.\n'
  printf '%s="%s"\n' NVTRADER_NEMORL_PYTHON "$PY" NVTRADER_NEMORL_SRC "$SRC" UV_PYTHON_PREFERENCE system UV_PYTHON "$PY"
  [[ -z ${NEMO_RL_VENV_DIR:-} ]] || printf '%s="%s"\n' NEMO_RL_VENV_DIR "$VENVS"
  local architectures
  architectures=${TORCH_CUDA_ARCH_LIST:-$(gpu_capability)}
  [[ -z $architectures ]] || printf '%s="%s"\n' TORCH_CUDA_ARCH_LIST "$architectures"
}

state_verify() {
  have_python || { SAYS="no environment yet" && return 1; }
  local answer last
  state_package || return 1
  if ! answer=$(cd -- "$SRC" && PYTHONDONTWRITEBYTECODE=1 "$PY" examples/run_dpo.py --help 2>&1 </dev/null); then
    last=$(tail -n 1 <<<"$answer")
    SAYS="examples/run_dpo.py does not start: $last" && return 1
  fi
  SAYS="$SAYS; examples/run_dpo.py starts"
}

do_verify() { [[ $DRY_RUN = 1 ]] || die "$SAYS" "run the script without --only; what is missing is listed by --check"; }
