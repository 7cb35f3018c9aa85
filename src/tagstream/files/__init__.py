"""Models in one file: written, read, and brought up from older formats."""
