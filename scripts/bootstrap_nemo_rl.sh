#!/usr/bin/env bash
# Sets NeMo-RL up on this machine: source tree, Python environment, and the fixes that a GB10 needs, step by step.
set -euo pipefail

LIB=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/lib" && pwd)
REPO=$(cd -- "$LIB/../.." && pwd)
# shellcheck source=scripts/lib/say.sh
source "$LIB/say.sh"
# shellcheck source=scripts/lib/places.sh
source "$LIB/places.sh"
# shellcheck source=scripts/lib/steps_source.sh
source "$LIB/steps_source.sh"
# shellcheck source=scripts/lib/steps_environment.sh
source "$LIB/steps_environment.sh"
# shellcheck source=scripts/lib/steps_torch.sh
source "$LIB/steps_torch.sh"
# shellcheck source=scripts/lib/steps_leftovers.sh
source "$LIB/steps_leftovers.sh"
# shellcheck source=scripts/lib/steps_bridge.sh
source "$LIB/steps_bridge.sh"
# shellcheck source=scripts/lib/steps_workers.sh
source "$LIB/steps_workers.sh"

ORDER=(host source submodules environment placeholder package torch capability transformer-engine uv
  venvs ray dataset-name rank-shape finalization shared-worker megatron verify)
declare -A ABOUT=(
  [host]="operating system, git, conda or uv, disk space"
  [source]="NeMo-RL's source tree at the pinned commit"
  [submodules]="gotcha 5: 'nemo-gym references a workspace ... but is not a workspace member'"
  [environment]="the environment nemo_rl with Python 3.13.13"
  [placeholder]="removes PyPI's nemo-rl 0.0.0, which is empty"
  [package]="NeMo-RL, installed from the source tree"
  [torch]="gotcha 1: torch 2.10.0+cpu; on Blackwell torch for CUDA 13 over the pinned one"
  [capability]="gotcha 2: 'CUDA capability range (8.0)-(12.0)'; torch computes on this GPU"
  [transformer-engine]="gotcha 3: 'Transformer Engine and Apex are not installed'"
  [uv]="gotcha 4: 'No interpreter found for Python 3.13.13'; uv, and the file with the variables"
  [venvs]="gotcha 6: workers' environments whose build broke off"
  [ray]="gotcha 7: 'Ray GCS connection timeout'; Ray sessions that nobody uses any more"
  [dataset-name]="gotcha 8: HelpSteer3 instead of our file"
  [rank-shape]="gotcha 9: KeyError: 'completions'"
  [finalization]="gotcha 10: PythonFinalizationError"
  [shared-worker]="with --share-worker: the DTensor worker uses this environment instead of one that uv builds"
  [megatron]="with --with-megatron: the environment of the Megatron worker, compiled"
  [verify]="NeMo-RL's DPO script starts"
)

usage() {
  cat <<'TEXT'
usage: scripts/bootstrap_nemo_rl.sh [options]
  --with-megatron      (or WITH_MEGATRON=1) also build the Megatron worker, for tensor and pipeline parallel recipes;
                       needs nvcc
  --share-worker       let the DTensor worker use the same environment, with its torch, instead of its own
  --force-torch        install torch for CUDA 13 even where no Blackwell GPU is seen
  --conda, --uv        what makes the environment (default: conda if it is here, else uv)
  --check              say what is there and what is missing; change nothing; exit code 1 if something is missing
  --dry-run            print the commands and run none
  --only STEP[,STEP]   only these steps
  --list               the steps
Variables: NVTRADER_NEMORL_SRC, NVTRADER_NEMORL_PYTHON, NVTRADER_NEMORL_COMMIT, NVTRADER_NEMORL_URL,
NVTRADER_NEMORL_MIN_GB. What they are: docs/nemo-rl.md
TEXT
}

wrong_usage() {
  printf 'error: %s\n' "$1" >&2
  usage >&2
  exit 2
}

WITH_MEGATRON=${WITH_MEGATRON:-0} SHARE_WORKER=0 FORCE_TORCH=0 CHECK=0 TOOL='' ONLY=''
while (($#)); do
  case $1 in
    --with-megatron) WITH_MEGATRON=1 ;;
    --share-worker) SHARE_WORKER=1 ;;
    --force-torch) FORCE_TORCH=1 ;;
    --conda | --uv) TOOL=${1#--} ;;
    --check) CHECK=1 ;;
    --dry-run) DRY_RUN=1 ;;
    --only=*) ONLY=${1#*=} ;;
    --only)
      (($# > 1)) || wrong_usage "--only needs the name of a step"
      ONLY=$2
      shift
      ;;
    --list)
      for step in "${ORDER[@]}"; do printf '%-20s %s\n' "$step" "${ABOUT[$step]}"; done
      exit 0
      ;;
    -h | --help) usage && exit 0 ;;
    *) wrong_usage "unknown option $1" ;;
  esac
  shift
done

CHOSEN=()
if [[ -n $ONLY ]]; then
  IFS=, read -r -a CHOSEN <<<"$ONLY"
  for step in "${CHOSEN[@]}"; do
    [[ -n ${ABOUT[$step]:-} ]] || wrong_usage "there is no step $step; there are: ${ORDER[*]}"
  done
else
  for step in "${ORDER[@]}"; do
    [[ $step = megatron && $WITH_MEGATRON = 0 ]] || [[ $step = shared-worker && $SHARE_WORKER = 0 ]] || CHOSEN+=("$step")
  done
fi

MISSING=()

# look STEP: says how the step stands; 1 if it is to do.
look() {
  local code=0
  SAYS=
  "state_${1//-/_}" || code=$?
  case $code in
    0) say "ok       $1: $SAYS" ;;
    2) say "nothing  $1: $SAYS" ;;
    *) return 1 ;;
  esac
}

# take STEP: looks at it and, unless --check, does what is to do.
take() {
  ! look "$1" || return 0
  if [[ $CHECK = 1 ]]; then
    MISSING+=("$1")
    say "missing  $1: $SAYS"
    return 0
  fi
  say "doing    $1: $SAYS"
  "do_${1//-/_}"
  [[ $DRY_RUN = 0 ]] || return 0
  look "$1" || die "step $1 was done, but: $SAYS" "scripts/bootstrap_nemo_rl.sh --check shows the rest"
}

find_places
find_python
for step in "${CHOSEN[@]}"; do take "$step"; done

if ((${#MISSING[@]})); then
  say ""
  say "missing: ${MISSING[*]}"
  say "scripts/bootstrap_nemo_rl.sh installs it; --only STEP does one step"
  exit 1
fi
[[ $CHECK = 0 && $DRY_RUN = 0 && -z $ONLY ]] || exit 0

say ""
say "NeMo-RL is set up. For this shell:"
say "export NVTRADER_NEMORL_PYTHON=$(quoted "$PY")"
say "export NVTRADER_NEMORL_SRC=$(quoted "$SRC")"
say "or: set -a; . $(quoted "$ENV_FILE"); set +a"
if find_bridge; then
  say ""
  NVTRADER_NEMORL_PYTHON=$PY NVTRADER_NEMORL_SRC=$SRC "$BRIDGE" doctor || say "doctor found something to be done (see above)"
fi
