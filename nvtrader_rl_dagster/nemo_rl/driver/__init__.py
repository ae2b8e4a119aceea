"""Our driver: runs inside NeMo-RL's interpreter, registers environments and rewards, then runs NeMo-RL's own script.

That interpreter has none of our dependencies: here only the standard library and what NeMo-RL brings are imported.
"""
