"""The memory on several machines: the names that programs import.

See :mod:`tagstream.store.ray`.
"""

from tagstream.files.ray import RayStore, load, save
from tagstream.store.ray.home import ShardLostError
from tagstream.store.ray.store import ShardedStore

__all__ = [
    "RayStore",
    "ShardLostError",
    "ShardedStore",
    "load",
    "save",
]
