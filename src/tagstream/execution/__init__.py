"""How long work is done: at fixed counts, in steps, in threads, and not interrupted halfway."""
