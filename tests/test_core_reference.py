"""The slow twins of the compiled core, which an environment variable selects, give the same."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

CODE = """
import sys
import numpy as np
import scipy.sparse as sp
import tagstream as ts

rng = np.random.default_rng(4)
centres = rng.random((4, 12)) < 0.4
topic = rng.integers(4, size=90)
X = (centres[topic] * rng.random((90, 12))).astype(np.float32)
Y = (rng.random((90, 6)) < 0.15).astype(np.uint8)
Y[np.arange(90), topic] = 1
X[70:75], Y[70:75] = X[40:45], Y[40:45]
scores = []
for params, rows, labels in [
    ({}, X, Y),
    ({"window": 40}, sp.csr_matrix(X), Y),
    ({"lag": 3, "window": 60}, X, Y),
    ({}, sp.csr_matrix(X), np.where(rng.random(Y.shape) < 0.2, np.nan, Y)),
]:
    model = ts.OML(random_state=0, **params).partial_fit(rows[:80], labels[:80])
    model.relabel(75, np.ones(6, int))
    asked = rows[76:]
    for next in (False, True):
        scores += [model.predict_proba(asked, next=next)]
        told = model.explain(asked, next=next)
        scores += [[[sum(why.parts[t].values()) for t in sorted(why.parts)]] for why in told]
tagger = ts.Tagger(ts.OML(random_state=0), tags=["winter sports", "bread"])
words = ["swim", "sail", "ski", "ice", "bread", "soup"]
tagger.learn(
    {"text": f"{words[i % 6]} {words[i * i % 5]} again", "y": ["sea" if i % 6 < 2 else "bread"]}
    for i in range(50)
)
said = [dict(tagger.suggest({"text": word}, next=n).scores) for word in words for n in (0, 1)]
scores += [[[one.get(tag, 0.0) for tag in tagger.tags]] for one in said]
flat = np.concatenate([np.asarray(part, float).ravel() for part in scores])
flat.tofile(sys.argv[1])
"""


def scores_with(core, folder):
    path = folder / (core or "compiled")
    env = {**os.environ, "TAGSTREAM_CORE": core}
    subprocess.run([sys.executable, "-c", CODE, str(path)], check=True, env=env)
    return np.fromfile(path)


def test_both_cores_give_the_same_probabilities_and_reasons(tmp_path):
    fast, slow = scores_with("", tmp_path), scores_with("reference", tmp_path)
    assert len(fast) > 500
    assert np.isfinite(fast).all()
    assert slow == pytest.approx(fast, abs=1e-12, rel=1e-12)
