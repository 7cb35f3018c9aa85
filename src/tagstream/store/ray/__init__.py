"""The memory on several machines: full segments live on Ray actors, bit-equal to one machine.

The stream is cut into segments of consecutive examples.  This process, the driver, holds the one
that is still open, and all that is small: metric, projection, head, vocabulary.  A full segment is
*sealed*: written to a file once, and given to one of the shards, an actor that loads it.  A shard
has nothing that cannot be made again: what a segment is, is a file and the changes since (other
labels, an example taken out, new codes), and the driver knows both.  So a shard that was killed
comes back empty, says what it misses, is told, and answers.

Why the bits are the same: a search returns exact distances, with ties going to the older example,
so the best of the best is the best of all; counts are whole numbers; and every sum over examples
follows one tree (:mod:`tagstream.store.sums`), of which a segment, a power of two of its leaves, is
a node.

Ray is the extra ``tagstream[ray]``.
"""
