"""The benchmark data sets by name, and `load`, which reads anything.

A data set lives in ``<data home>/<name>/``: either ``<name>.arff`` (also ``.gz`` or ``.bz2``), or
the files of its public source under their own names. ``<name>.xml`` beside it names the labels;
without it the position of the labels, which is recorded here, does. What is there is used as it is
and no network is touched.

Only files whose checksum is known are downloaded. For the others the registry names the source and
the place where the file belongs. The checksums stand for the files as they were at the commit in
the address. They are those of files rebuilt from the same rows and headers. Where Git LFS stores
the files, as in mrapp-ke/Boomer-Datasets, the repository itself publishes the same SHA-256; the
others were compared with the published text in length, beginning and end.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from tagstream.checks import DataError
from tagstream.records.arff import iter_arff
from tagstream.records.dataset import Dataset, Rows, concatenate
from tagstream.records.formats import read

__all__ = [
    "DATASETS",
    "DatasetInfo",
    "RemoteFile",
    "data_home",
    "fetch",
    "load",
    "present",
]

_MULAN = "https://raw.githubusercontent.com/tsoumakas/mulan"
_BOOMER = "https://raw.githubusercontent.com/mrapp-ke/Boomer"
_BOOMER_LFS = "https://github.com/mrapp-ke/Boomer-Datasets/raw"  # leads on to the LFS store
_SKMULTILEARN = "https://raw.githubusercontent.com/scikit-multilearn/scikit-multilearn"


@dataclass(frozen=True)
class RemoteFile:
    """A file of a public source, at a fixed commit, and the SHA-256 of its content."""

    url: str
    sha256: str

    @property
    def filename(self) -> str:
        """The last part of the address."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a benchmark data set before it is read.

    Attributes
    ----------
    name, domain : str
    n, p, q : int
        Numbers of examples, features and labels.
    cardinality : float
        Mean number of labels per example.
    labels : int
        Where the labels stand, as in MEKA's ``-C``: the first ones if positive, else the last.
    n_train : int or None
        The first ``n_train`` rows are the training part of the customary split.
    paper : bool
        Whether it is one of the eight data sets of the paper.
    source : str
        Repository and files it comes from.
    files : tuple of RemoteFile
        What `fetch` downloads: the parts whose rows make up the data set, in order. Empty when no
        public file with a known checksum has been established.
    """

    name: str
    domain: str
    n: int
    p: int
    q: int
    cardinality: float
    labels: int
    n_train: int | None
    paper: bool
    source: str
    files: tuple[RemoteFile, ...] = ()


def _mulan(folder: str, *files: str) -> str:
    return f"tsoumakas/mulan: data/multi-label/{folder}/ {', '.join(files)}"


DATASETS: dict[str, DatasetInfo] = {
    info.name: info
    for info in [
        DatasetInfo(
            *("corel5k", "image", 5000, 499, 374, 3.522, -374, 4500, True),
            _mulan("corel5k", "Corel5k-train-sparse.arff", "Corel5k-test-sparse.arff"),
            (
                RemoteFile(
                    f"{_MULAN}/2f7c6545781ba4c09b4cb5ab4be4eedc03aa4e8b"
                    "/data/multi-label/corel5k/Corel5k-train-sparse.arff",
                    "19eb253c447144bea74ffa86b4731a56022addae2ba7d0aab72ad07fdc02e9b3",
                ),
                RemoteFile(
                    f"{_MULAN}/2f7c6545781ba4c09b4cb5ab4be4eedc03aa4e8b"
                    "/data/multi-label/corel5k/Corel5k-test-sparse.arff",
                    "e8f8e9cd052c43ba7bdfdf99d242f461fc8c2a03163466d921e576887b51d8a7",
                ),
            ),
        ),
        DatasetInfo(
            *("emotions", "music", 593, 72, 6, 1.868465, -6, 391, True),
            "tsoumakas/mulan: mulan/data/ emotions.arff",
            (
                RemoteFile(  # the SHA-256 is also that of emotions.arff in Boomer-Datasets
                    f"{_MULAN}/d65105d1c5cff604bb6eed9d16838c3851ac5595/mulan/data/emotions.arff",
                    "6f2f790047073d1293ac0872c0d55f2dc98b6177802fc96c6b66b309dfee1e4b",
                ),
            ),
        ),
        DatasetInfo(
            *("enron", "text", 1702, 1001, 53, 3.378378, -53, 1123, True),
            "mrapp-ke/Boomer-Datasets: enron-train.arff, enron_test.arff",
            (
                RemoteFile(
                    f"{_BOOMER_LFS}/91950e2fd9fb199df84f0c045fde589fa5ec46c5/enron-train.arff",
                    "2988cefc1cdf7a8004a20ef84615cc8fa1b5d7434c16687283b41454e2d9d194",
                ),
                RemoteFile(
                    f"{_BOOMER_LFS}/7e587cb68234bf7628aef6ed0a5c2df8a4eb519e/enron_test.arff",
                    "2f3aad54a8f54caaab4ab01246fe9dd385ba944a2633028f52747b57eac5474e",
                ),
            ),
        ),
        DatasetInfo(
            *("medical", "text", 978, 1449, 45, 1.245399, -45, 333, True),
            "scikit-multilearn/scikit-multilearn: data/ medical-train.arff, medical-test.arff",
            (  # the SHA-256 are also those of the LFS files in ConflictedPhilosopher/MLR
                RemoteFile(
                    f"{_SKMULTILEARN}/6e387ca43bb10e81ccdef28bd4f57a3d538af5fd"
                    "/data/medical-train.arff",
                    "c764f45756ab1c553b8b4eaaf5605a5610a43bbbcf37492d0f1a12bf9c9e2244",
                ),
                RemoteFile(
                    f"{_SKMULTILEARN}/afc7c14ac0b0db892ce6fa0e50d6257d124b6f77"
                    "/data/medical-test.arff",
                    "6be472e75a6c0b0916187f343a398011b1b26f8f0ddc682c575312ad3532f6c4",
                ),
            ),
        ),
        DatasetInfo(
            *("cal500", "music", 502, 68, 174, 26.043825, -174, None, True),
            "mrapp-ke/Boomer-Datasets: cal500.arff",
            (
                RemoteFile(
                    f"{_BOOMER_LFS}/fb12e0c02e62e7d4a94c5f1f26ba5a66c2f3d674/cal500.arff",
                    "cfe6097ba5fd6e8584e54911ab9783dcab34e898446b7c9370c71d477eae56d3",
                ),
            ),
        ),
        DatasetInfo(
            *("image", "image", 2000, 294, 5, 1.236, -5, 1501, True),
            "mrapp-ke/Boomer: data/ image-train.arff, image-test.arff",
            (
                RemoteFile(
                    f"{_BOOMER}/1b6f0909fe2191ff1cd5748d65f5c57ae3ff4054/data/image-train.arff",
                    "26bdac46f5eda9aa44adf8496787242a5a9d3cd2c5fa284d36b9d5221e0b92b6",
                ),
                RemoteFile(
                    f"{_BOOMER}/1b6f0909fe2191ff1cd5748d65f5c57ae3ff4054/data/image-test.arff",
                    "7ae850e486b4490b2fa55a06c0b67f2b5bf5406fbf9f2b80fc78acffa2066a26",
                ),
            ),
        ),
        DatasetInfo(
            *("scene", "image", 2407, 294, 6, 1.073951, -6, 1211, True),
            _mulan("scene", "scene-train.arff", "scene-test.arff"),
            (
                RemoteFile(
                    f"{_MULAN}/5862bed221a9ec2baf9a090f5e98637e9dfb088b"
                    "/data/multi-label/scene/scene-train.arff",
                    "b53ba93bdf412de922e3960389bcee24744fa3e872ce610511fc1d750888b64d",
                ),
                RemoteFile(
                    f"{_MULAN}/5862bed221a9ec2baf9a090f5e98637e9dfb088b"
                    "/data/multi-label/scene/scene-test.arff",
                    "ea38d20296b3ff7e220f477a3b802a9bcb2d768881fe6ee163efbc97ea527a42",
                ),
            ),
        ),
        DatasetInfo(
            *("slashdot", "text", 3782, 1079, 22, 1.180857, 22, 1891, True),
            "lehneres/edu.uni-tuebingen: data/ SLASHDOT-F.arff",
            (
                RemoteFile(  # other copies call the feature classXXX class
                    "https://raw.githubusercontent.com/lehneres/edu.uni-tuebingen"
                    "/c3276a50e69e076dc9e1dd41632c898fe10987de/data/SLASHDOT-F.arff",
                    "35c7b933211fc39c623252f2289de1460f588265a3df8be2c97f3090708476eb",
                ),
            ),
        ),
        DatasetInfo(
            *("yeast", "biology", 2417, 103, 14, 4.237071, -14, 1500, False),
            "mrapp-ke/Boomer-Datasets: yeast-train.arff, yeast_test.arff",
            (
                RemoteFile(
                    f"{_BOOMER_LFS}/73db96cbcc8cc8891830fc86827617e4a8e7f033/yeast-train.arff",
                    "e759dc991ff54694a4ff9c4314f3be0d6fd2b1994a4b563f57e416394c6aebbd",
                ),
                RemoteFile(
                    f"{_BOOMER_LFS}/7e587cb68234bf7628aef6ed0a5c2df8a4eb519e/yeast_test.arff",
                    "4aaac102bff9669a765bf0b378602e5cc8c3b181048282e2f003117b496d552a",
                ),
            ),
        ),
        DatasetInfo(
            *("bibtex", "text", 7395, 1836, 159, 2.401893, -159, 4880, False),
            "mrapp-ke/Boomer-Datasets: bibtex-train.arff, bibtex-test.arff",
            (
                RemoteFile(
                    f"{_BOOMER_LFS}/e925d705fe09f4ce593cf162e953862d8a0cee76/bibtex-train.arff",
                    "8dcc9de6e0b2cebaec8c1f4fac78431adeeb73cfd3ab879b530a66d366e59174",
                ),
                RemoteFile(
                    f"{_BOOMER_LFS}/e925d705fe09f4ce593cf162e953862d8a0cee76/bibtex-test.arff",
                    "9b03329cde64d3f994bdf7fbbac3f3b10fe185c311cb9ae725475f59c7f3f922",
                ),
            ),
        ),
        DatasetInfo(
            *("delicious", "text", 16105, 500, 983, 19.019994, -983, 12920, False),
            "mrapp-ke/Boomer-Datasets: delicious.arff",
            (
                RemoteFile(
                    f"{_BOOMER_LFS}/db86cef9af5ef1d01f5554e689e790a3e1a0637b/delicious.arff",
                    "b944de0bca910050c11d97eed57d17b073110ea3646a587f3d15d127cf581aab",
                ),
            ),
        ),
        DatasetInfo(
            *("mediamill", "video", 43907, 120, 101, 4.375567, -101, 30993, False),
            "mrapp-ke/Boomer-Datasets: mediamill.arff",
            (
                RemoteFile(  # dense rows, while other copies are sparse
                    f"{_BOOMER_LFS}/9d76f26050aea32aea6d255365146b7990db838e/mediamill.arff",
                    "ad7e629d599ac1c80dfabe32fb9f18be28accd8e902515a461497bc48760a72b",
                ),
            ),
        ),
        DatasetInfo(
            *("tmc2007-500", "text", 28596, 500, 22, 2.157924, -22, 21519, False),
            _mulan("tmc2007", "tmc2007-500.arff"),
            (
                RemoteFile(
                    f"{_MULAN}/1531119649de9c7ffec8e3009c649e5985d76c21"
                    "/data/multi-label/tmc2007/tmc2007-500.arff",
                    "3ea7e95dd80a78a3e7d521d77c3371bfef888da1d364b5a3bb71c7222ad7f013",
                ),
            ),
        ),
    ]
}


def data_home(path: str | os.PathLike[str] | None = None) -> Path:
    """Return the directory of the data sets.

    Parameters
    ----------
    path : path or None
        None: ``$TAGSTREAM_DATA``, else the directory for caches of this user and system.
    """
    if path is not None:
        return Path(path)
    if os.environ.get("TAGSTREAM_DATA"):
        return Path(os.environ["TAGSTREAM_DATA"])
    if sys.platform == "win32":
        cache = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        cache = Path.home() / "Library" / "Caches"
    else:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "tagstream"


def present(name: str, *, data_home: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return the paths of a data set's ARFF files; none unless all of it is here.

    Parameters
    ----------
    name, data_home
        See `fetch`.
    """
    folder = _home(data_home) / name
    for suffix in ("", ".gz", ".bz2"):
        if (folder / f"{name}.arff{suffix}").is_file():
            return [folder / f"{name}.arff{suffix}"]
    files = [folder / file.filename for file in DATASETS[name].files]
    return files if all(file.is_file() for file in files) else []


def fetch(
    name: str, *, data_home: str | os.PathLike[str] | None = None, progress: Any = False
) -> list[Path]:
    """Return the paths of a data set's ARFF files, downloading what is missing.

    A download is written beside its destination, checked against its SHA-256 and only then moved
    there. One that fails leaves nothing behind and can be repeated.

    Parameters
    ----------
    name : str
        A key of `DATASETS`.
    data_home : path or None
        See `tagstream.data.data_home`.
    progress : bool or object
        True shows a bar (needs tqdm); an object with ``total``, ``update``, ``reset`` and ``close``
        is told instead.

    Raises
    ------
    DataError
        A downloaded file does not have its SHA-256.
    FileNotFoundError
        The data set is absent and cannot be downloaded.
    ImportError
        A download needs the extra ``tagstream[fetch]``.
    """
    info = DATASETS[name]
    folder = _home(data_home) / name
    if found := present(name, data_home=data_home):
        return found
    if not info.files:
        raise FileNotFoundError(
            f"data set {name!r} must be at {folder / name}.arff (or .arff.gz), got no such file; "
            f"it cannot be downloaded by name, its source is {info.source}"
        )
    for file in info.files:
        if not (folder / file.filename).is_file():
            _download(file, folder, progress)
    return [folder / file.filename for file in info.files]


_home = data_home  # the name is also that of a parameter


def _download(file: RemoteFile, folder: Path, progress: Any) -> None:
    try:
        import pooch
        from requests import RequestException
    except ImportError as error:
        raise ImportError(
            f"downloading {file.url} needs pooch; install tagstream[fetch], "
            f"or put the file into {folder}"
        ) from error
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")  # it writes to standard error; who wants to be told gives progress
    try:
        pooch.retrieve(
            file.url,
            known_hash=f"sha256:{file.sha256}",
            fname=file.filename,
            path=folder,
            downloader=pooch.HTTPDownloader(progressbar=progress),
        )
    except RequestException as error:
        why = "no connection"
        if error.response is not None:
            why = f"status {error.response.status_code}"
            error.response.close()  # pooch leaves it open
        raise FileNotFoundError(
            f"{file.url}: must be within reach, got {why}; "
            f"download {file.filename} by other means into {folder}"
        ) from error
    except ValueError as error:
        raise DataError(f"{file.url}: must have SHA-256 {file.sha256}, got {error}") from error
    finally:
        logger.setLevel(level)


def load(
    name_or_path: str | os.PathLike[str],
    *,
    data_home: str | os.PathLike[str] | None = None,
    progress: Any = False,
    featurizer: Rows | None = None,
    format: str | None = None,
    labels: Any = None,
    sep: str | None = None,
    text: str | None = None,
    ids: str | None = None,
    delimiter: str | None = None,
    missing: float | None = None,
    n_features: int | None = None,
    zero_based: bool | None = None,
) -> Dataset:
    """Read a whole data set, by name or from a file.

    Parameters
    ----------
    name_or_path : str or path
        A key of `DATASETS`, downloaded if it is absent and can be; or the path of a file in one of
        `FORMATS`, plain, ``.gz`` or ``.bz2``.
    data_home, progress
        For a name: see `fetch`.
    featurizer : object with rows(items), or None
        What makes rows of texts and of named values; None is ``Hashing()``.
    format : str or None
        A key of `FORMATS`. None: as the file's ending says.
    labels
        For ARFF, CSV, JSON Lines and Parquet: see their readers, `iter_arff` and so on.
    sep, text, ids
        For CSV, JSON Lines and Parquet.
    delimiter : str or None
        For CSV.
    missing : float or None
        For ARFF and CSV: what stands in ``X`` for a missing value; None is NaN.
    n_features, zero_based
        For LIBSVM: see `iter_libsvm`.

    Returns
    -------
    Dataset
        Where the file does not say whether a label applies, ``Y`` is NaN.

    Raises
    ------
    DataError
        Naming path and line, when the file is not what it should be.
    FileNotFoundError
        No such name or path.
    """
    key = str(name_or_path).lower()
    if isinstance(name_or_path, str) and key in DATASETS:
        return _load_by_name(DATASETS[key], data_home, progress, missing)
    path = Path(name_or_path)
    if not path.exists() or path.is_dir():
        raise FileNotFoundError(
            f"data must be a file or one of {', '.join(DATASETS)}, got {str(name_or_path)!r}"
        )
    return read(
        path,
        format=format,
        featurizer=featurizer,
        labels=labels,
        sep=sep,
        text=text,
        ids=ids,
        delimiter=delimiter,
        missing=missing,
        n_features=n_features,
        zero_based=zero_based,
    )


def _load_by_name(
    info: DatasetInfo, home: str | os.PathLike[str] | None, progress: Any, missing: float | None
) -> Dataset:
    paths = fetch(info.name, data_home=home, progress=progress)
    xml = paths[0].parent / f"{info.name}.xml"
    labels = xml if xml.is_file() else info.labels
    fill = float("nan") if missing is None else missing
    parts = chain.from_iterable(iter_arff(path, labels=labels, missing=fill) for path in paths)
    data = concatenate(parts, path=str(paths[0]))
    return replace(data, name=info.name, n_train=info.n_train)
