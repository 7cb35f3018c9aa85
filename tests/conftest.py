"""What all tests share: no network, and no test that fails because the machine is busy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings

from tagstream.data import DATASETS

# Hypothesis fails an example that takes long, or that is slow to be made.  How long that is says
# more about what else the machine does than about the code.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(autouse=True, scope="module")
def _no_downloads(request):
    """Take the addresses from the registry, but for its own tests, which have a loopback server."""
    with pytest.MonkeyPatch.context() as patch:
        if request.module.__name__ != "test_data_registry":
            for name, info in DATASETS.items():
                patch.setitem(DATASETS, name, replace(info, files=()))
        yield
