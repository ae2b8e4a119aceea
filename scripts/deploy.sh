#!/usr/bin/env bash
# Deploys on this host: our package, NeMo-RL, and a systemd user service that runs `nvtrader-rl up`.
set -euo pipefail

LIB=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/lib" && pwd)
REPO=$(cd -- "$LIB/../.." && pwd)
# shellcheck source=scripts/lib/say.sh
source "$LIB/say.sh"

usage() {
  cat <<'TEXT'
usage: scripts/deploy.sh [options]
  --with-megatron, --share-worker, --force-torch, --conda, --uv   as in scripts/bootstrap_nemo_rl.sh
  --without-nemo-rl    only our package; the embedded trainer is used
  --without-service    no systemd user service
  --home FOLDER        where all state lies (default: NVTRADER_RL_HOME, else data/ in this repository)
  --host ADDRESS       address of the web UI (default 127.0.0.1; the UI has no login)
  --port PORT          port of the web UI (default 3000)
  --dry-run            print the commands and run none
TEXT
}

wrong_usage() {
  printf 'error: %s\n' "$1" >&2
  usage >&2
  exit 2
}

HOST=127.0.0.1 PORT=3000 STATE=${NVTRADER_RL_HOME:-$REPO/data} NEMO_RL=1 SERVICE=1
FOR_BOOTSTRAP=()
while (($#)); do
  case $1 in
    --with-megatron | --share-worker | --force-torch | --conda | --uv) FOR_BOOTSTRAP+=("$1") ;;
    --without-nemo-rl) NEMO_RL=0 ;;
    --without-service) SERVICE=0 ;;
    --dry-run) DRY_RUN=1 ;;
    --home | --host | --port)
      (($# > 1)) || wrong_usage "$1 needs a value"
      case $1 in --home) STATE=$2 ;; --host) HOST=$2 ;; --port) PORT=$2 ;; esac
      shift
      ;;
    -h | --help) usage && exit 0 ;;
    *) wrong_usage "unknown option $1" ;;
  esac
  shift
done
[[ $PORT =~ ^[0-9]+$ ]] || wrong_usage "--port $PORT is no number"
STATE=$(realpath -m -- "$STATE")
UNIT_NAME=nvtrader-rl.service
UNIT=${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user/$UNIT_NAME

# A word in a systemd unit: quoted, with its specifiers and variables taken literally.
word() {
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//%/%%}
  printf '"%s"' "${text//\$/\$\$}"
}

unit() {
  cat <<TEXT
# Written by scripts/deploy.sh.
[Unit]
Description=nvtrader-rl: web UI, daemon and trainings

[Service]
WorkingDirectory=${REPO//%/%%}
Environment=$(word "NVTRADER_RL_HOME=$STATE")
EnvironmentFile=-${REPO//%/%%}/third_party/nemo-rl.env
ExecStart=$(word "$REPO/.venv/bin/nvtrader-rl") up --host $HOST --port $PORT
# A training goes on while the server is started anew; nvtrader-rl runs cancel ends it.
KillMode=process
Restart=on-failure
RestartSec=10

[Install]
WantedBy=default.target
TEXT
}

deploy_package() {
  say "== package"
  command -v make >/dev/null || die "make is not installed" "sudo apt-get install make"
  run "is the network there? pip's own message is above" make --no-print-directory -C "$REPO" install
}

deploy_nemo_rl() {
  say "== NeMo-RL"
  [[ $NEMO_RL = 1 ]] || { say "left out; the embedded trainer is used" && return 0; }
  local options=("${FOR_BOOTSTRAP[@]}")
  [[ $DRY_RUN = 0 ]] || options+=(--dry-run)
  "$REPO/scripts/bootstrap_nemo_rl.sh" "${options[@]}" ||
    die "NeMo-RL is not set up" "see above, then run this again; --without-nemo-rl goes on with the embedded trainer"
}

deploy_service() {
  say "== service"
  [[ $SERVICE = 1 ]] || { say "left out; start it with: make up" && return 0; }
  local content
  content=$(unit)
  if ! systemctl --user show-environment >/dev/null 2>&1; then
    say "no systemd user session is here. This would be $UNIT:"
    printf '%s\n' "$content" | sed 's/^/  /'
    say "without systemd: $(quoted env "NVTRADER_RL_HOME=$STATE" "$REPO/.venv/bin/nvtrader-rl" up --host "$HOST" --port "$PORT")"
    return 0
  fi
  if have_content "$UNIT" "$content"; then say "$UNIT is up to date"; else write_file "$UNIT" "$content"; fi
  run "" systemctl --user daemon-reload
  run "" systemctl --user enable --quiet "$UNIT_NAME"
  run "journalctl --user -u $UNIT_NAME shows why" systemctl --user restart "$UNIT_NAME"
  say "it stops when you log out, unless: loginctl enable-linger"
  say "UI: http://$HOST:$PORT"
}

deploy_package
deploy_nemo_rl
deploy_service
say "== doctor"
if [[ $DRY_RUN = 0 && -f $REPO/third_party/nemo-rl.env && $NEMO_RL = 1 ]]; then
  set -a
  # shellcheck source=/dev/null
  source "$REPO/third_party/nemo-rl.env"
  set +a
fi
export NVTRADER_RL_HOME=$STATE
run "the findings above say what to do" "$REPO/.venv/bin/nvtrader-rl" doctor
