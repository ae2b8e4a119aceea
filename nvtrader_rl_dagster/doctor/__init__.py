"""Looks for what would keep the loop from running for weeks. One module per topic; nothing is created or changed."""
