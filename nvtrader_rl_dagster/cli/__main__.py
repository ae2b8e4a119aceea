"""`python -m nvtrader_rl_dagster.cli`."""

from nvtrader_rl_dagster.cli import app

app()
