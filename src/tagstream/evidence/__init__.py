"""The evidence for each label, and the online models that weigh it."""
