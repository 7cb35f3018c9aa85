"""Online multi-label classification by metric learning."""

__version__ = "0.1.0"
