"""Files that run in the trainer's interpreter, by path: they import nothing of ours."""
