"""A checkpoint as a Hugging Face folder: recognised, converted, proven to load."""
