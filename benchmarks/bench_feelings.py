"""What a sentence encoder costs, and is worth, on comments that name feelings.

They are in the folder that ``TAGSTREAM_TEXT`` names; the rest is :mod:`benchmarks.bench_encoder`.
"""

from __future__ import annotations

from benchmarks.bench_encoder import comments, section
from benchmarks.timing import Section


def run(quick: bool) -> Section:
    return section(comments(), "GoEmotions comments", quick)
