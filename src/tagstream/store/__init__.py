"""Stored examples: rows, codes, labels and names, sums over them, and exact search."""
