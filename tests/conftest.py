"""No test touches the network, but for the loopback server of the registry's own tests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tagstream.data import DATASETS


@pytest.fixture(autouse=True, scope="module")
def _no_downloads(request):
    with pytest.MonkeyPatch.context() as patch:
        if request.module.__name__ != "test_data_registry":
            for name, info in DATASETS.items():
                patch.setitem(DATASETS, name, replace(info, files=()))
        yield
