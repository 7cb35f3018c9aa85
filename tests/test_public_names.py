"""Every public name of version 0.2 can still be imported from where it was."""

from __future__ import annotations

import importlib

import pytest

# As docs/api.md of 0.2 listed them.
NAMES = {
    "tagstream": (
        "DataError Dataset Encoder KNN MultiLabelScores OLANSGD OML OSMLELM PublishedOML "
        "Tagger __version__ holdout load load_model make_stream prequential save_model"
    ),
    "tagstream.tagger": "Learnt Suggestion Tagger TaggerView",
    "tagstream.models": "Explanation KNN Neighbor OLANSGD OML OSMLELM PublishedOML",
    "tagstream.base": "StreamClassifier View",
    "tagstream.checks": "DataError",
    "tagstream.decision": "MACRO RULES check_rule decide",
    "tagstream.text": (
        "Columns Encoder FEATURIZERS Featurizer Hashing Named Text featurizer_for shared_words"
    ),
    "tagstream.data": (
        "Batch DATASETS Dataset DatasetInfo FORMATS Format Hashing RemoteFile Tally data_home "
        "fetch format_of iter_arff iter_csv iter_jsonl iter_libsvm iter_lines iter_parquet "
        "iter_records load make_stream posts present read_labels_xml write_arff write_csv "
        "write_jsonl write_libsvm"
    ),
    "tagstream.memory": "Coded DenseRows LocalStore Neighbors SparseRows Store",
    "tagstream.evaluate": (
        "Checkpoint Fold HoldoutResult PrequentialResult holdout iterative_folds prequential "
        "train_test"
    ),
    "tagstream.metrics": "MultiLabelScores",
    "tagstream.persist": "ModelInfo inspect load load_with_extra remove_leftovers save",
    "tagstream.compat.river": "FromRiver Labels Probabilities RiverClassifier",
    "tagstream.cluster": "RayStore ShardLostError ShardedStore load save",
}


@pytest.mark.parametrize("module", NAMES)
def test_public_names_of_0_2_are_where_they_were(module: str) -> None:
    if module == "tagstream.compat.river":
        pytest.importorskip("river")
    if module == "tagstream.cluster":
        pytest.importorskip("ray")
    home = importlib.import_module(module)
    assert [name for name in NAMES[module].split() if not hasattr(home, name)] == []


def test_re_exporting_modules_say_what_they_export() -> None:
    for name in ("base", "data", "evaluate", "memory", "metrics", "models", "persist", "text"):
        home = importlib.import_module(f"tagstream.{name}")
        assert [public for public in home.__all__ if not hasattr(home, public)] == []
