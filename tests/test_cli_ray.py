"""``--ray``: what comes out is what one process gives, byte for byte."""

from __future__ import annotations

import gc
import json
import sys
import warnings

import pytest

from tagstream import OML, make_stream
from tagstream.cli import ray as cli_ray
from tagstream.cli.output import Failed


@pytest.fixture(autouse=True)
def _tidy():
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray leaves ending processes to the garbage collector
        gc.collect()


def batches():
    stream = make_stream(900, seed=1)
    for first in range(500, 900, 50):
        yield first, stream.X[first : first + 50]


def worker():
    stream = make_stream(900, seed=1)
    model = OML(random_state=0, lift=None).partial_fit(stream.X[:500], stream.Y[:500])

    def answer(batch):
        first, X = batch
        return f"{first}: {model.predict_proba(X).round(6).tolist()}\n"

    return answer


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray Data warns of its own options
def test_answers_come_in_the_order_of_the_file_as_one_process_gives_them():
    ray = pytest.importorskip("ray.data") and pytest.importorskip("ray")
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests
    answer = worker()
    assert [*cli_ray.in_order(batches, worker, cli_ray.HERE, 2)] == [*map(answer, batches())]


def test_a_learner_without_a_store_is_refused():
    from tagstream import OLANSGD

    with pytest.raises(Failed, match="stores examples, got OLANSGD"):
        cli_ray.on_shards(OLANSGD(), cli_ray.HERE, 2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray Data warns of its own options
def test_the_commands_print_and_save_what_they_do_without_ray(tmp_path, monkeypatch, capfd):
    pytest.importorskip("ray.data")
    from tagstream import cli

    monkeypatch.chdir(tmp_path)
    words = ["sort", "list", "swim", "sea", "soup", "salt"]
    with open("posts.jsonl", "w") as file:
        for i in range(300):
            text = f"{words[i % 6]} {words[i // 6 % 6]} {i % 7}"
            file.write(json.dumps({"id": i, "text": text, "y": [words[i % 3]]}) + "\n")
    for name, more in (("one.tgs", []), ("two.tgs", ["--ray", "here"])):
        assert cli.main(["learn", "posts.jsonl", "-m", name, "--quiet", *more]) == 0
    assert (tmp_path / "one.tgs").read_bytes() == (tmp_path / "two.tgs").read_bytes()
    capfd.readouterr()
    printed = []
    for more in ([], ["--ray", "here"]):
        command = ["predict", "posts.jsonl", "-m", "one.tgs", "--show", "scores", "--chunk", "40"]
        assert cli.main([*command, *more]) == 0
        printed.append(capfd.readouterr().out)
    assert printed[0].count("\n") == 300
    assert printed[0] == printed[1]
    assert cli.main(["predict", "-", "-m", "one.tgs", "--ray", "here"]) == 2
