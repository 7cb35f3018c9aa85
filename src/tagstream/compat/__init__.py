"""Adapters for other libraries, each an optional extra: import the module you need."""
