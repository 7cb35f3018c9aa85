"""Data sets: readers for the formats of the field, benchmark data by name, synthetic streams.

`load` reads everything at once; the ``iter_…`` functions read chunk by chunk in bounded memory.
"""

from tagstream.features import Hashing
from tagstream.records.arff import iter_arff, read_labels_xml
from tagstream.records.dataset import Batch, Dataset
from tagstream.records.datasets import (
    DATASETS,
    DatasetInfo,
    RemoteFile,
    data_home,
    fetch,
    load,
    present,
)
from tagstream.records.folders import iter_folder
from tagstream.records.formats import FORMATS, Format, format_of, iter_records
from tagstream.records.libsvm import iter_libsvm
from tagstream.records.lines import Tally
from tagstream.records.record import iter_jsonl, iter_parquet
from tagstream.records.sheets import iter_xlsx
from tagstream.records.synthetic import make_stream, posts
from tagstream.records.tabular import iter_csv, iter_lines
from tagstream.records.writers import write_arff, write_csv, write_jsonl, write_libsvm

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
    "iter_folder",
    "iter_jsonl",
    "iter_libsvm",
    "iter_lines",
    "iter_parquet",
    "iter_records",
    "iter_xlsx",
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
