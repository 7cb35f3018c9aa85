"""Data sets: readers for the formats of the field, benchmark data by name, synthetic streams.

`load` reads everything at once; the ``iter_…`` functions read chunk by chunk in bounded memory.
"""

from tagstream.data.arff import iter_arff, read_labels_xml
from tagstream.data.dataset import Batch, Dataset
from tagstream.data.formats import FORMATS, Format, format_of, iter_records
from tagstream.data.libsvm import iter_libsvm
from tagstream.data.lines import Tally
from tagstream.data.records import iter_jsonl, iter_parquet
from tagstream.data.registry import (
    DATASETS,
    DatasetInfo,
    RemoteFile,
    data_home,
    fetch,
    load,
    present,
)
from tagstream.data.synthetic import make_stream, posts
from tagstream.data.tabular import iter_csv, iter_lines
from tagstream.data.writers import write_arff, write_csv, write_jsonl, write_libsvm
from tagstream.text import Hashing

__all__ = [
    "DATASETS",
    "FORMATS",
    "Batch",
    "Dataset",
    "DatasetInfo",
    "Format",
    "Hashing",
    "RemoteFile",
    "Tally",
    "data_home",
    "fetch",
    "format_of",
    "iter_arff",
    "iter_csv",
    "iter_jsonl",
    "iter_libsvm",
    "iter_lines",
    "iter_parquet",
    "iter_records",
    "load",
    "make_stream",
    "posts",
    "present",
    "read_labels_xml",
    "write_arff",
    "write_csv",
    "write_jsonl",
    "write_libsvm",
]
