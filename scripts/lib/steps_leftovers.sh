# shellcheck shell=bash
# Steps: what failed starts leave behind, workers' environments and Ray's folders. Sourced by bootstrap_nemo_rl.sh.

# Pid of a process with this text on its command line or in its environment; empty without one that we may read.
process_with() {
  local file pid files=(/proc/[0-9]*/cmdline /proc/[0-9]*/environ) # listed before grep, which has the text too
  while IFS= read -r file; do
    pid=${file#/proc/}
    pid=${pid%%/*}
    if [[ $pid != "$$" && $pid != "$BASHPID" ]]; then
      printf '%s' "$pid"
      return 0
    fi
  done < <(grep -alsF -- "$1" "${files[@]}")
}

# What is wrong with a worker's environment; empty when nothing is. A build that broke off leaves bin/python without
# packages, and the next start takes it as it is; or a mark for which every later start waits for ever.
worker_problem() {
  local answer
  [[ -x $1/bin/python ]] || { printf 'has no interpreter' && return 0; }
  [[ ! -e $1/STARTED_ENV_BUILDER ]] || { printf 'was not finished' && return 0; }
  answer=$("$1/bin/python" "$LIB/probe.py" modules torch ray transformers 2>/dev/null) || answer="broken cannot run"
  [[ $answer = ok* ]] || printf '%s' "$answer"
}

# Sets BROKEN to the environments that may be removed, SAYS to what was seen.
look_at_workers() {
  local folder problem user good=0
  BROKEN=()
  SAYS=
  for folder in "$VENVS"/*; do
    [[ -d $folder || -L $folder ]] || continue
    problem=$(worker_problem "$folder")
    if [[ -z $problem ]]; then
      good=$((good + 1))
      continue
    fi
    user=$(process_with "$folder")
    if [[ -n $user ]]; then
      SAYS="${SAYS}${folder##*/} is in use by process $user and stays; "
    else
      BROKEN+=("$folder")
      SAYS="${SAYS}${folder##*/} $problem; "
    fi
  done
  SAYS="${SAYS}$good good"
}

state_venvs() {
  [[ -d $VENVS ]] || { SAYS="none built yet in $VENVS" && return 2; }
  look_at_workers
  ((${#BROKEN[@]} == 0))
}

do_venvs() {
  look_at_workers
  local folder
  for folder in "${BROKEN[@]}"; do run "is $VENVS yours?" rm -rf -- "$folder"; done
}

ray_folder() { printf '%s/ray' "${RAY_TMPDIR:-${TMPDIR:-/tmp}}"; }

# Sets STALE to our own Ray sessions that no process uses, SAYS to what was seen.
look_at_ray() {
  local session user kept=0 folder
  folder=$(ray_folder)
  STALE=()
  for session in "$folder"/session_*; do
    # A younger one may be starting: its folder comes before its processes.
    [[ -d $session && ! -L $session && -O $session ]] || continue
    [[ -n $(find "$session" -maxdepth 0 -mmin +2) ]] || { kept=$((kept + 1)) && continue; }
    user=$(process_with "${session##*/}")
    if [[ -n $user ]]; then kept=$((kept + 1)); else STALE+=("$session"); fi
  done
  # Its address is what a later start tries first, and waits for.
  local pointer=$folder/ray_current_cluster
  if [[ -f $pointer && -O $pointer ]] && ! listens "$(<"$pointer")"; then STALE+=("$pointer"); fi
  SAYS="${#STALE[@]} left over in $folder, $kept in use"
}

# Whether somebody answers at HOST:PORT.
# shellcheck disable=SC2016 # the inner shell expands it
listens() { timeout 3 bash -c 'exec 3<>"/dev/tcp/${1%:*}/${1##*:}"' - "$1" 2>/dev/null; }

state_ray() {
  [[ -d $(ray_folder) ]] || { SAYS="no Ray folder; our trainings have their own" && return 2; }
  look_at_ray
  ((${#STALE[@]} == 0))
}

# No pkill: a raylet may belong to somebody's cluster. `nvtrader-rl doctor` names the ones that are not ours.
do_ray() {
  look_at_ray
  local left
  for left in "${STALE[@]}"; do run "" rm -rf -- "$left"; done
}
