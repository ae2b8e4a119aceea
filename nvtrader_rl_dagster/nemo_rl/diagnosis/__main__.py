"""Prints `docs/gotchas.md`."""

from __future__ import annotations

from nvtrader_rl_dagster.nemo_rl.diagnosis.page import page

if __name__ == "__main__":
    print(page(), end="")
