"""Feedback: events, the append-only store, the importers and the pair builder. Imports neither dagster nor torch."""
