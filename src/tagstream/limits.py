"""The sizes from which on things are done in another way, in one object that is handed down."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LIMITS", "Limits"]


@dataclass(frozen=True)
class Limits:
    """From which sizes on a learner does things in another way, and how much it does at a time.

    They are no parameters of a learner: the defaults are good for every stream.  Tests make them
    small, so that few examples take the ways of many.  A learner takes those of its class
    (``StreamClassifier._limits``) when it starts or is loaded, and hands them to its store and its
    embedding; a ``RayStore`` takes those of its class too.  A fit has them from the examples that
    it sees.

    Attributes
    ----------
    dense_cells : int
        Items times labels of a batch that is read into one array.
    leaf, dear_leaf : int
        Examples that are summed at a time; and where much is made of each.
    scanned, packed, little : int
        Numbers in the queries that pass over the stored rows together, and stay in a near cache;
        rows that are packed at a time where none are stored so; pairs for which it is not worth to
        wait for another loop to be compiled.
    grouped : int
        Rows from which on they are grouped for a search.
    in_box, in_shadow : float
        Shares of the variance that boxes and shadows of groups must hold, or groups are not made.
    shared : int
        Items that are asked about at a time where threads share them.
    many_labels, rank : int
        Labels beyond which they are reduced, and the directions that they are reduced to.
    lift_size : int
        Features of a lift.
    sample, ridge_sample : int
        Examples on which choices are made, so that their cost stays constant; and on which the
        ridge of many features is sought.
    many_examples : int
        Examples beyond which lifts are looked for near the last choice only, and all warm rounds of
        conjugate gradients are made: none was ever spared there.
    caution : float
        Standard errors by which a lift has to be better, per doubling of the sample.
    direct, primal : int
        Examples up to which wide rows are solved for in the space of examples, and features up to
        which normal equations are formed.
    rounds, warm_rounds : int
        Of conjugate gradients, from nothing and from the last fit.
    features_kept : int
        Dense examples from which on features stay until the next choice.
    chosen_at_once, fitted_at_once : int
        Stored examples below which a fit takes no time to speak of: with a choice, and without.
    delay_share, least_delay : int
        A later fit takes effect when so many-th as many examples more have come, and no fewer than
        the second.
    patience : float
        Seconds that each row gives to a fit under way,
    few_rows : int
        where no more rows are learnt together.  Who learns more waits at the end.
    """

    dense_cells: int = 1 << 26
    leaf: int = 4096
    dear_leaf: int = 512
    scanned: int = 1 << 14
    packed: int = 1 << 13
    little: int = 1 << 13
    grouped: int = 4096
    in_box: float = 0.8
    in_shadow: float = 0.95
    shared: int = 512
    many_labels: int = 512
    rank: int = 256
    lift_size: int = 1000
    sample: int = 512
    ridge_sample: int = 750
    many_examples: int = 4096
    caution: float = 0.5
    direct: int = 1000
    primal: int = 3000
    rounds: int = 25
    warm_rounds: int = 3
    features_kept: int = 1000
    chosen_at_once: int = 256
    fitted_at_once: int = 1024
    delay_share: int = 64
    least_delay: int = 16
    patience: float = 4e-3
    few_rows: int = 16


LIMITS = Limits()
