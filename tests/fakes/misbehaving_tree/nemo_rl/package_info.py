"""The release that this tree claims to be."""

MAJOR = 0
MINOR = 6
PATCH = 0
