"""A simulated cluster loses a node; a process of its own, since a process knows one cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys, warnings
import numpy as np
sys.path.insert(0, sys.argv[1])
import ray
from ray.cluster_utils import Cluster
from tagstream.limits import Limits
from tagstream.learners.estimator import StreamClassifier
from tagstream.cluster import RayStore
import test_cluster as t

StreamClassifier._limits = RayStore._limits = Limits(leaf=t.LEAF)
nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 10**8})
first, spare = (nodes.add_node(num_cpus=2, object_store_memory=10**8) for _ in range(2))
ray.init(address=nodes.address, log_to_driver=False)
store = RayStore(2, t.SEGMENT, cpus=1.0, timeout=200.0, folder=sys.argv[2])
lost = []

def between(model, stop):
    if len(model._store.segments) >= 2 and not lost:
        nodes.remove_node(first, allow_graceful=False)
        lost.append(stop)

X, _ = t.draw("dense")
model = t.learn("dense", store, [3, 170, t.N], between)
assert lost
t.assert_equal_models(t.learn("dense"), model, X[t.N:])
store.close()
ray.shutdown()
nodes.shutdown()
print("equal")
"""


@pytest.mark.slow
def test_a_lost_node_with_a_spare_one_changes_nothing(tmp_path):
    pytest.importorskip("ray")
    tests = str(Path(__file__).parent)
    command = [sys.executable, "-c", SCRIPT, tests, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout.strip().endswith("equal"), done.stdout[-2000:] + done.stderr[-2000:]
