"""Data sets: readers for the formats of the field, benchmark data by name, synthetic streams.

`load` reads everything at once; the ``iter_…`` functions read chunk by chunk in bounded memory.
"""

from tagstream.data.arff import iter_arff, read_labels_xml
from tagstream.data.dataset import Batch, Dataset
from tagstream.data.libsvm import iter_libsvm
from tagstream.data.registry import (
    DATASETS,
    DatasetInfo,
    RemoteFile,
    data_home,
    fetch,
    format_of,
    load,
    present,
)
from tagstream.data.synthetic import make_stream
from tagstream.data.tabular import Hashing, iter_csv, iter_jsonl
from tagstream.data.writers import write_arff, write_csv, write_jsonl, write_libsvm

__all__ = [
    "DATASETS",
    "Batch",
    "Dataset",
    "DatasetInfo",
    "Hashing",
    "RemoteFile",
    "data_home",
    "fetch",
    "format_of",
    "iter_arff",
    "iter_csv",
    "iter_jsonl",
    "iter_libsvm",
    "load",
    "make_stream",
    "present",
    "read_labels_xml",
    "write_arff",
    "write_csv",
    "write_jsonl",
    "write_libsvm",
]
