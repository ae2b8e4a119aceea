"""Embedded trainer: a subprocess that reads NeMo-RL's YAML and prints and writes what NeMo-RL 0.6.0 does.

Importing this package loads no torch; run it with ``python -m nvtrader_rl_dagster.local_trainer``.
"""
