"""The label metric V: its rounds, and the space of codes that it spans."""
