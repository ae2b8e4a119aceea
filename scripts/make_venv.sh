#!/usr/bin/env bash
# Makes a virtual environment at $1 with $PYTHON (default python3), on a machine that may lack the venv module.
set -euo pipefail

venv=${1:?usage: make_venv.sh FOLDER}
python=${PYTHON:-python3}

command -v "$python" >/dev/null || { echo "error: $python not found; install Python 3.11 or newer" >&2; exit 1; }
if ! "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))'; then
  echo "error: $("$python" --version) is not supported; use 3.10 to 3.13, e.g. make demo PYTHON=python3.11" >&2
  exit 1
fi

# Debian and Ubuntu ship `venv` without `ensurepip` until python3-venv is installed.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo -n)
  echo "installing python3-venv ..."
  if ! { "${as_root[@]}" apt-get update -qq && "${as_root[@]}" apt-get install -y -qq python3-venv; } >/dev/null 2>&1; then
    echo "error: $python lacks the venv module; run: sudo apt-get install python3-venv" >&2
    exit 1
  fi
fi

"$python" -m venv "$venv"
