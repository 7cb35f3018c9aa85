"""``tagstream demo``: placeholder."""


def demo() -> None:
    """Demo."""
