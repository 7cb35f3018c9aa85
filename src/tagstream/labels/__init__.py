"""Labels of items, whatever form they come in."""
