"""Stored examples: rows, codes, labels and names, with an optional window, and exact search."""

from tagstream.store.coded import Coded
from tagstream.store.local import LocalStore
from tagstream.store.protocol import Neighbors, Store
from tagstream.store.rows import DenseRows, SparseRows

__all__ = ["Coded", "DenseRows", "LocalStore", "Neighbors", "SparseRows", "Store"]
