"""Tables and sentences on loss and bound: the paper's, and one that holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tagstream.paper.results import Results
from tagstream.paper.table import Table, each, tabulate
from tagstream.paper.verdict import Verdict

__all__ = ["bound_tables"]

Record = Mapping[str, Any]
NAMES = {
    "paper": "Algorithm 1",
    "proof": "Eq. 6",
    "default step": "exact, capped",
    "no learning": "V = I",
}
LEMMA = {"n_lemma_first": "U = V₁", "n_lemma_last": "U = V_T+1"}
WILD = 100  # a loss beyond this power of ten has lost all meaning
SLACK = 1e-9  # for rounding


def bound_tables(results: Results) -> dict[str, Table | str]:
    """Return the tables and sentences, by name."""
    made: dict[str, Table | str] = {}
    if results.part("bound"):
        made["bound"] = _bound_table(results)
        made["lemma"] = _lemma_table(results)
        made["verdict_bound"] = _bound_verdict(results)
    if results.part("guarantee"):
        made["guarantee"] = _guarantee_table(results)
        made["verdict_guarantee"] = _guarantee_verdict(results)
    return made


def _result(key: str, form: str) -> Callable[[Record], str]:
    return lambda record: format(record["result"][key], form)


def _run(record: Record, name: str) -> Any:
    return next(run for run in record["result"]["runs"] if run["name"] == name)


def _paper_bound(record: Record) -> str:
    """The bound of the theorem with U = V_T+1."""
    r = record["result"]
    if r["c"] == 0:
        return "∞"
    distance = _run(record, "paper")["distance_last"]
    return f"{distance * (r['norm_P'] * r['r'] + r['q']) / (r['m'] * r['c'] ** 2):.3g}"


def _bound_table(results: Results) -> Table:
    records = results.part("bound")

    def loss(record: Record, name: str) -> str:
        return f"{_run(record, name)['cumulative_loss']:,.4g}"

    columns = (
        ("data set", lambda record: record["dataset"]),
        ("T", _result("T", ",")),
        ("q", _result("q", "")),
        *each(
            [run["name"] for run in records[0]["result"]["runs"]],
            lambda name: f"loss, {NAMES[name]}",
            loss,
        ),
        ("‖P‖²", _result("norm_P", ".3g")),
        ("r", _result("r", ".3g")),
        ("‖V₁ − V_T+1‖²", lambda record: f"{_run(record, 'paper')['distance_last']:.3g}"),
        ("rank A", _result("rank_A", "")),
        ("c", _result("c", ".3g")),
        ("bound", _paper_bound),
    )
    return tabulate(
        records,
        columns,
        "Loss: Σ l_t over the T rounds after the first block, P fixed. Algorithm 1 and Eq. 6 use "
        "the cubic step in [10⁻⁵, 10⁵] from a standard normal V₁, the others start at V = I. "
        "r = max ‖x‖². Rank and c: largest over the rounds that were decomposed. "
        "The bound is that of the theorem with U = V_T+1.",
    )


def _lemma_table(results: Results) -> Table:
    def share(record: Record, name: str, key: str) -> str:
        run = _run(record, name)
        return f"{run[key] / max(run['n_active'], 1):.0%}"

    def columns_of(name: str) -> Any:
        yield f"{NAMES[name]}: rounds with a step", lambda r: f"{_run(r, name)['n_active']:,}"
        first, last = LEMMA
        yield f"holds, {LEMMA[first]}", lambda record: share(record, name, first)
        yield LEMMA[last], lambda record: share(record, name, last)

    columns = (
        ("data set", lambda record: record["dataset"]),
        *(column for name in ("paper", "proof", "default step") for column in columns_of(name)),
        ("Eq. 6: ⟨V, AV⟩ < 0", lambda record: share(record, "proof", "n_negative")),
        (
            "Algorithm 1: largest entry of V_T+1",
            lambda record: f"{_run(record, 'paper')['largest_last']:.2g}",
        ),
    )
    records = results.part("bound")
    zero = " = 0" if all(record["result"]["c"] == 0 for record in records) else ""
    return tabulate(
        records,
        columns,
        "Holds: share of the rounds with a step in which the inequality that Lemma 2 assumes for "
        "all rounds is true. ⟨V, AV⟩ < 0: rounds in which the proof replaces ⟨V, AV⟩ from below "
        f"by c²‖V‖²{zero}, which is larger.",
    )


def _bound_verdict(results: Results) -> str:
    bounds = [record["result"] for record in results.part("bound")]
    infinite = [r for r in bounds if r["c"] == 0]
    says_nothing = Verdict("The bound says", len(infinite), len(bounds))
    rank = max(r["rank_A"] for r in bounds)
    where = "on all" if says_nothing.holds else f"on {len(infinite)} of"
    assumed = [
        run[key] < run["n_active"]
        for r in bounds
        for run in r["runs"]
        if run["name"] in ("paper", "proof") and run["n_active"]
        for key in LEMMA
    ]
    wild = sum(run["cumulative_loss"] > 10**WILD for r in bounds for run in r["runs"])
    return (
        f"{says_nothing.said('nothing here.', 'something here.')} A has rank {rank}, so "
        f"for q > {rank} its c is 0 {where} {len(bounds)} data sets and the bound is "
        "infinite. What Lemma 2 assumes of all rounds fails in some round in "
        f"{sum(assumed)} of {len(assumed)} runs (with U = V₁ or U = V_T+1). With the update "
        "of the proof (Eq. 6) and the paper's bounds on the step, the cumulative loss passes "
        f"10^{WILD} on {wild} of the data sets."
    )


# ---------------------------------------------------------------------- a bound that holds
def _guarantee_table(results: Results) -> Table:
    papers = {record["dataset"]: record for record in results.part("bound")}

    def factor(record: Record) -> str:
        return f"{1 + 2 * record['result']['C'] * record['result']['largest']:.3f}"

    def papers_bound(record: Record) -> str:
        paper = papers.get(record["dataset"])
        return "–" if paper is None else _paper_bound(paper)

    columns = (
        ("data set", lambda record: record["dataset"]),
        ("rounds", _result("T", ",")),
        ("loss", lambda record: f"**{record['result']['squared_loss']:,.0f}**"),
        ("loss of I", _result("identity_loss", ",.0f")),
        ("bound, U = I", _result("bound", ",.0f")),
        ("its factor", factor),
        ("loss of the best U", lambda record: f"{record['result']['best']['loss']:,.0f}"),
        ("‖I − U‖²", lambda record: f"{record['result']['best']['distance']:.2f}"),
        ("bound, best U", lambda record: f"{record['result']['best']['bound']:,.0f}"),
        ("the paper's bound", papers_bound),
    )
    return tabulate(
        results.part("guarantee"),
        columns,
        "Loss: Σ l_t² over all rounds of the stream, in file order; P moves as it does in use. "
        "The bound for U = I is known while the stream runs, and is its factor times the loss of "
        "I. The best U is found in hindsight: the metric whose bound is least, to a thousandth.",
    )


def _is_kept(result: Mapping[str, Any], bound: str) -> bool:
    """Whether the loss lies below a bound at every look along the run."""
    curve = result["curve"]
    pairs = zip(curve["squared_loss"], curve[bound], strict=True)
    return all(loss <= value * (1 + SLACK) for loss, value in pairs)


def _guarantee_verdict(results: Results) -> str:
    runs = [record["result"] for record in results.part("guarantee")]
    kept = sum(_is_kept(r, bound) for r in runs for bound in ("bound", "best_bound"))
    verdict = Verdict("The bound", kept, 2 * len(runs))
    how = (
        f": on {len(runs)} data sets, at every look along the run, the loss lies below both bounds."
        if verdict.holds
        else f": the loss passes {verdict.threshold - kept} of {verdict.threshold} bounds."
    )
    above = [r["bound"] / r["squared_loss"] - 1 for r in runs]
    hindsight = [min(r["bound"], r["best"]["bound"]) / r["squared_loss"] - 1 for r in runs]
    gains = [1 - r["squared_loss"] / r["identity_loss"] for r in runs]
    return (
        f"{verdict.said('holds', 'does not hold')}{how} At the end the bound that is known while "
        f"the stream runs, U = I, is {min(above):.0%} to {max(above):.0%} above the loss; that for "
        f"the best U in hindsight {min(hindsight):.0%} to {max(hindsight):.0%}. "
        "Learning the metric makes the loss smaller on "
        f"{sum(gain > 0 for gain in gains)} of {len(gains)} data sets, by up to {max(gains):.0%}."
    )
