"""Progress bars: what they say, to a terminal only."""

from __future__ import annotations

import pytest

from tagstream.cli import output


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.25, "learning: 500, 50 a second, 25%, 30 s left"), (None, "learning: 500, 50 a second")],
)
def test_a_bar_tells_share_rate_and_time_left(monkeypatch, share, said):
    now = [0.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    shown = []
    bar = output.Bar("learning", quiet=True)
    monkeypatch.setattr(bar, "_show", lambda text, done, total: shown.append((text, done, total)))
    now[0] = 10.0
    bar.share(500, share)
    assert shown == [(said, 250, 1000) if share else (said, 500, None)]


def test_a_bar_shows_nothing_but_on_a_terminal(capsys):
    with output.Bar("learning", quiet=False) as bar:
        bar.share(3, 0.5)
    assert capsys.readouterr() == ("", "")
