"""Measures, folds, hold-out and test-then-train."""
