"""What commands say while they work."""

from __future__ import annotations

from tagstream.cli import output
from tagstream.cli.output import Bar


def test_without_a_terminal_the_time_left_is_said_where_it_is_known(capsys, monkeypatch):
    monkeypatch.setattr(output, "SAY_EVERY", 0.0)
    with Bar("cells", quiet=False) as bar:
        bar(1, 90)
        bar(3, 90, 540.0)
    assert capsys.readouterr().err == "cells: 3 of 90, 9.0 min left\n"


def test_it_is_not_said_more_than_once_a_minute(capsys):
    with Bar("cells", quiet=False) as bar:
        bar(1, 90, 600.0)
        bar(2, 90, 590.0)
    assert capsys.readouterr().err == ""


def test_a_quiet_command_says_nothing(capsys, monkeypatch):
    monkeypatch.setattr(output, "SAY_EVERY", 0.0)
    with Bar("cells", quiet=True) as bar:
        bar(1, 90, 600.0)
    assert capsys.readouterr().err == ""
