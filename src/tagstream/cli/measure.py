"""``tagstream evaluate FILE --model m.tgs``: a saved model measured on items with known tags."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tagstream.cli.model import open_tagger
from tagstream.cli.output import Bar, Failed, count, new_table, put, put_json, put_table, say
from tagstream.cli.predict import open_lines
from tagstream.cli.records import Reading, check_columns, download, name_of

if TYPE_CHECKING:
    from tagstream.evaluation.quality import Quality
    from tagstream.tagger import Tagger

CHUNK = 256


def measure_model(
    data: str,
    model: str,
    reading: Reading,
    *,
    rule: str | float | None,
    encoder: str | None,
    html: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Ask a model about the items of DATA, and print how good its answers are."""
    from tagstream.evaluation.quality_page import quality_page

    tagger = open_tagger(model, encoder)
    download(data, quiet)
    quality, stored, skipped = _measured(tagger, data, reading.of_model(tagger), rule, quiet)
    if skipped:
        say(f"{count(skipped, 'record')} without labels passed over", quiet)
    if stored:
        say(
            f"{count(stored, 'item')} of {name_of(data)} stored in {model}, too: their figures say "
            "nothing about new items",
            quiet,
        )
    title = f"{model} on {name_of(data)}"
    if html is not None:
        Path(html).write_text(quality_page(quality, title), "utf-8")
        say(f"{html} written", quiet)
    if as_json:
        put_json(_as_record(quality, data, model, stored))
    else:
        _put(quality, title)


def _measured(
    tagger: Tagger, data: str, how: Reading, rule: str | float | None, quiet: bool
) -> tuple[Quality, int, int]:
    """Return the quality, how many items are stored in the model, and how many had no labels."""
    from tagstream.evaluation.quality import measure

    truth: list[Any] = []
    tags: list[Any] = []
    scores: list[Any] = []
    known = {*tagger.texts.values()}
    stored = skipped = 0
    with Bar("asking", quiet) as bar:
        tally = open_lines(how, data)
        for batch in how.batches(data, CHUNK, tally=tally):
            check_columns(batch, tagger, data)
            for found, true, item in zip(
                tagger.suggest(replace(batch, ids=None), decide=rule),
                batch.label_sets,
                batch.items,
                strict=True,
            ):
                if true is None:
                    skipped += 1
                    continue
                truth.append(true)
                tags.append(found.tags)
                scores.append(found.scores)
                stored += isinstance(item, str) and item in known
            bar.share(len(truth), None if tally is None else tally.share)
    if not truth:
        raise Failed(
            f"{name_of(data)}: must have labels to be measured on, got none; "
            "say where they are with --labels"
        )
    return measure(truth, tags, scores), stored, skipped


def _as_record(quality: Quality, data: str, model: str, stored: int) -> dict[str, Any]:
    def told(found: Any) -> dict[str, Any]:
        return {
            "items": found.n_items,
            "suggested": found.n_suggested,
            "precision": found.precision,
            "recall": found.recall,
            "f1": found.f1,
            "interval": found.interval,
        }

    return {
        "data": name_of(data),
        "model": model,
        "n": quality.n_items,
        "stored": stored,
        "micro": told(quality.all),
        "macro_f1": quality.macro_f1,
        "precision_at_1": quality.precision_at[1],
        "precision_at_3": quality.precision_at[3],
        "calibration_error": quality.calibration_error,
        "bins": [asdict(part) for part in quality.bins],
        "tags": {str(tag): told(found) for tag, found in quality.tags.items()},
    }


def _put(quality: Quality, title: str) -> None:
    low, high = quality.all.interval
    put(
        f"{title}: {count(quality.n_items, 'item')}\n"
        f"micro-F1 {quality.all.f1:.4f} ({low:.4f} to {high:.4f}), "
        f"macro-F1 {quality.macro_f1:.4f}, "
        f"P@1 {quality.precision_at[1]:.4f}, P@3 {quality.precision_at[3]:.4f}\n"
        f"{calibration_line(quality)}\n\n"
    )
    table = new_table("tag", "Items", "Precision", "Recall", "F1", "95 % interval")
    for tag, found in quality.tags.items():
        low, high = found.interval
        shown = [f"{value:.3f}" for value in (found.precision, found.recall, found.f1)]
        table.add_row(str(tag), f"{found.n_items:,}", *shown, f"{low:.2f} to {high:.2f}")
    put_table(table)


def calibration_line(quality: Quality) -> str:
    """Return in one line how far scores can be taken for probabilities."""
    if not quality.bins:
        return "calibration: no score of 0.1 or more"
    n = sum(part.n for part in quality.bins)
    mean = sum(part.n * part.mean for part in quality.bins) / n
    right = sum(part.n * part.right for part in quality.bins) / n
    return (
        f"calibration: scores of 0.1 and more are {mean:.2f} on average, and {right:.2f} of them "
        f"are right; by tenths, they differ by {quality.calibration_error:.3f} on average"
    )
