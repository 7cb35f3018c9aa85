"""Vectors in registers for loops that the compiler does not vectorise by itself."""
