#!/usr/bin/env bash
# Entry point of the image: NeMo-RL's variables, if the image has it, then the command.
set -euo pipefail

variables=$(dirname -- "${BASH_SOURCE[0]}")/../third_party/nemo-rl.env
if [[ -f $variables ]]; then
  set -a
  # shellcheck source=/dev/null
  source "$variables"
  set +a
fi
exec "$@"
