# shellcheck shell=bash
# Steps: what our own bridge fixes; here it is only looked at. Sourced by bootstrap_nemo_rl.sh.

# Sets BRIDGE to our console script; fails when it is not installed.
find_bridge() {
  BRIDGE=$REPO/.venv/bin/nvtrader-rl
  [[ -x $BRIDGE ]] || BRIDGE=$(command -v nvtrader-rl) || { SAYS="nvtrader-rl is not installed yet (make demo, or scripts/deploy.sh)" && return 1; }
}

state_dataset_name() {
  find_bridge || return 2
  local yaml
  yaml=$("$BRIDGE" config dpo 2>&1) || { SAYS="nvtrader-rl config dpo fails: $(tail -n 1 <<<"$yaml")" && return 1; }
  if ! grep -q 'dataset_name: PreferenceDataset' <<<"$yaml" || grep -q HelpSteer3 <<<"$yaml"; then
    SAYS="the YAML of nvtrader-rl config dpo does not name PreferenceDataset alone" && return 1
  fi
  SAYS="nvtrader-rl config dpo names PreferenceDataset and our file, never HelpSteer3"
}

do_dataset_name() { [[ $DRY_RUN = 1 ]] || die "$SAYS" "this is a fault of the package: install it again (make demo)"; }

state_rank_shape() {
  find_bridge || return 2
  local row
  row=$(rank_row 2>&1) || { SAYS="nvtrader-rl feedback fails: $(tail -n 1 <<<"$row")" && return 1; }
  if [[ $row != *'"context":'* || $row != *'"completions":'* || $row != *'"rank":'* ]]; then
    SAYS="a row of the training file lacks context, completions or rank" && return 1
  fi
  SAYS="the training file has context and ranked completions"
}

# One row of the file that DPO trains on, from a feedback store of its own.
rank_row() (
  home=$(mktemp -d)
  trap 'rm -rf -- "$home"' EXIT
  unset NVTRADER_RL_STORE
  export NVTRADER_RL_HOME=$home/state
  "$BRIDGE" feedback record --prompt question --chosen good --rejected bad >/dev/null &&
    "$BRIDGE" feedback export "$home/rows.jsonl" --shape nemo_rl >/dev/null &&
    cat -- "$home/rows.jsonl"
)

do_rank_shape() { [[ $DRY_RUN = 1 ]] || die "$SAYS" "this is a fault of the package: install it again (make demo)"; }

state_finalization() {
  SAYS="'PythonFinalizationError: preexec_fn not supported' only follows an earlier failure: read further up in the log; nvtrader-rl runs show names it"
  return 2
}

do_finalization() { :; }
