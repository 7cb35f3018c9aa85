"""The compiled loops, over plain arrays: products, votes, exact search, similarity."""
