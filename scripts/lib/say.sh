# shellcheck shell=bash
# Messages, and commands that are shown, tried and explained when they fail. Sourced by the scripts.

DRY_RUN=${DRY_RUN:-0}

say() { printf '%s\n' "$*"; }

# die MESSAGE REMEDY: one error, one thing to do about it.
die() {
  printf 'error: %s\n' "$1" >&2
  [[ -z ${2:-} ]] || printf '       %s\n' "$2" >&2
  exit 1
}

# A command line as it could be typed.
quoted() {
  local words
  printf -v words '%q ' "$@"
  printf '%s' "${words% }"
}

# run REMEDY COMMAND...: shows the command and runs it (not in a dry run); a failure ends the script with the remedy.
run() {
  local remedy=$1 code=0
  shift
  say "  \$ $(quoted "$@")"
  [[ $DRY_RUN = 0 ]] || return 0
  "$@" || code=$?
  [[ $code = 0 ]] || die "this command ended with code $code: $(quoted "$@")" "$remedy"
}

# write_file FILE CONTENT: replaces the file as a whole (not in a dry run).
write_file() {
  say "  writes $1"
  [[ $DRY_RUN = 0 ]] || return 0
  mkdir -p -- "$(dirname -- "$1")"
  printf '%s\n' "$2" >"$1.new"
  mv -f -- "$1.new" "$1"
}

# have_content FILE CONTENT: whether the file is there and says exactly that.
have_content() { [[ -f $1 && $(<"$1") = "$2" ]]; }
