# shellcheck shell=bash
# Steps: the host, the source tree and its submodules. Sourced by bootstrap_nemo_rl.sh.
#
# state_STEP sets SAYS and returns 0 (done), 1 (to do) or 2 (nothing to do on this machine). do_STEP does it.

NETWORK="is the network there? Behind a proxy set https_proxy; a mirror of the repository goes into NVTRADER_NEMORL_URL"

state_host() {
  local machine
  machine="$(uname -s) $(uname -m)"
  case $machine in
    "Linux aarch64" | "Linux x86_64") ;;
    *) SAYS="this is $machine; NeMo-RL needs Linux on aarch64 or x86_64" && return 1 ;;
  esac
  command -v git >/dev/null || { SAYS="git is not installed" && return 1; }
  if ! have_python; then
    [[ -n $TOOL ]] || { SAYS="neither conda nor uv is on PATH" && return 1; }
    if [[ $TOOL = conda ]] && ! have_conda; then SAYS="conda is not on PATH" && return 1; fi
    if [[ $TOOL = uv ]] && ! command -v uv >/dev/null; then SAYS="uv is not on PATH" && return 1; fi
  fi
  local needed=${NVTRADER_NEMORL_MIN_GB:-40} free
  [[ $WITH_MEGATRON = 0 ]] || needed=${NVTRADER_NEMORL_MIN_GB:-80}
  free=$(($(df -Pk -- "$(existing_parent "$SRC")" | awk 'NR == 2 { print $4 }') / 1024 / 1024))
  if ! have_python && ((free < needed)); then
    SAYS="$free GB are free for $SRC; $needed GB are needed" && return 1
  fi
  SAYS="$machine, git, ${TOOL:-$PY}, $free GB free"
}

do_host() {
  case $SAYS in
    git*) die "$SAYS" "sudo apt-get install git" ;;
    *"GB are needed") die "$SAYS" "make room, put the tree elsewhere with NVTRADER_NEMORL_SRC, or set NVTRADER_NEMORL_MIN_GB" ;;
    "this is"*) die "$SAYS" "run it on the GPU machine; without NeMo-RL the embedded trainer is used" ;;
    uv*) die "$SAYS" "install it: pip install uv" ;;
    *) die "$SAYS" "install Miniforge (https://conda-forge.org/download) or uv (pip install uv)" ;;
  esac
}

existing_parent() {
  local folder=$1
  while [[ ! -d $folder ]]; do folder=$(dirname -- "$folder"); done
  printf '%s' "$folder"
}

in_source() { git -C "$SRC" "$@"; }

head_commit() { in_source rev-parse --quiet --verify 'HEAD^{commit}' 2>/dev/null; }

state_source() {
  local head wanted
  [[ -e $SRC/.git ]] || { SAYS="no source tree in $SRC" && return 1; }
  head=$(head_commit) || { SAYS="$SRC has no commit checked out" && return 1; }
  wanted=$(in_source rev-parse --quiet --verify "$COMMIT^{commit}" 2>/dev/null) || wanted=$COMMIT
  [[ $head = "$wanted" ]] || { SAYS="$SRC is at ${head:0:9}, wanted is ${COMMIT:0:9}" && return 1; }
  SAYS="$SRC is at $COMMIT"
}

do_source() {
  local what=$COMMIT
  [[ $COMMIT =~ ^[0-9a-f]{40}$ ]] || what="+refs/tags/$COMMIT:refs/tags/$COMMIT"
  if [[ ! -e $SRC/.git ]]; then
    if [[ -d $SRC && -n $(ls -A -- "$SRC") ]]; then
      die "$SRC is there and is no git checkout" "move it away, or set NVTRADER_NEMORL_SRC to another folder"
    fi
    run "is $(dirname -- "$SRC") writable?" git init -q "$SRC"
  elif [[ -n $(in_source status --porcelain --untracked-files=no --ignore-submodules=all) ]]; then
    die "$SRC has changed files, so its commit is not changed" "commit or undo them (git -C $(quoted "$SRC") status)"
  fi
  if in_source remote get-url origin >/dev/null 2>&1; then
    run "" git -C "$SRC" remote set-url origin "$URL"
  else
    run "" git -C "$SRC" remote add origin "$URL"
  fi
  run "$NETWORK" git -C "$SRC" fetch -q --depth 1 origin "$what"
  run "undo changes in $SRC that are in the way" git -C "$SRC" checkout -q --detach "$COMMIT"
}

state_submodules() {
  local lines absent
  head_commit >/dev/null || { SAYS="no source tree yet" && return 1; }
  lines=$(in_source submodule status --recursive 2>/dev/null) || { SAYS="git cannot read the submodules" && return 1; }
  # `-`: not there, `+`: another commit, `U`: conflict.
  absent=$(grep -c '^[-+U]' <<<"$lines" || true)
  [[ $absent = 0 ]] || { SAYS="$absent of $(wc -l <<<"$lines") submodules are not there or at another commit" && return 1; }
  SAYS="$(grep -c . <<<"$lines" || true) submodules are there"
}

do_submodules() {
  # A submodule's address can differ between two commits.
  run "" git -C "$SRC" submodule --quiet sync --recursive
  run "uv refuses the workspace until all submodules are there. Is github.com reached? Behind a proxy set https_proxy; for mirrors: git config --global url.MIRROR.insteadOf https://github.com/" \
    git -C "$SRC" submodule update --init --recursive --depth 1 --jobs 4
}
