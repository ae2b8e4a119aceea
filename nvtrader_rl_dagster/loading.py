"""Loads Dagster and takes what that made out of the garbage collector's sight: it lives as long as the process.

Otherwise a full pass over it falls into the import of our own modules: see benchmarks/import_cost.py.
"""

import gc

import dagster  # noqa: F401

gc.freeze()
