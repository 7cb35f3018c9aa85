"""States after fixed streams are what they were, to the bit, wherever that can be compared."""

from __future__ import annotations

import json

import pytest

import golden


@pytest.mark.slow  # four minutes
@pytest.mark.exact
def test_golden_states_are_unchanged() -> None:
    kept = json.loads(golden.FILE.read_text())
    if kept["made_with"] != golden.made_with():
        pytest.skip("golden states were made with another processor or other libraries")
    assert golden.differences(kept["states"]) == []
