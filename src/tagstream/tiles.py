"""The innermost step of a search: a tile of products that stays in the processor's registers.

Loops in Python's syntax give no hold on registers, so the tile is written in LLVM's vectors:
sixteen stored rows lie side by side in a *panel*, one number of each per line, and are multiplied
with some queries at a time.  The products are compared where they are made and never go to memory
unless one of them matters.  A vector of sixteen single-precision numbers is one register of AVX-512
and two of AVX2; the number of queries is such that all sums of a tile have a register.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba.core import types
from numba.extending import intrinsic

__all__ = ["AHEAD", "LANES", "TOGETHER", "above_bulk", "above_one"]

LANES = 16  # rows of a panel
TOGETHER = 12 if binding.get_host_cpu_features().get("avx512f") else 6  # queries of a bulk tile
AHEAD = 4  # panels that a single query is multiplied with at a time

_LONG, _INT, _BITS = ir.IntType(64), ir.IntType(32), ir.IntType(LANES)
_SINGLES = ir.VectorType(ir.FloatType(), LANES)
_UNKNOWN = ir.Constant(_SINGLES, ir.Undefined)
_FIRST = ir.Constant(ir.VectorType(_INT, LANES), [0] * LANES)


def _tile(n_queries: int, n_panels: int) -> Any:
    """Return the function that makes and compares a tile; it can be called in compiled code.

    ``above(queries, g, panels, b, limits, masks, sums)`` takes queries (·, d, n_queries), panels
    (·, d + 1, LANES), limits (·, n_queries), masks (tiles,) and sums (tiles, LANES), all
    contiguous, tiles = n_queries n_panels, d ≥ 1.  For group g of the queries and panels b, b + 1,
    … it makes the first line of the panel plus the product of query and the other lines, and
    returns whether any such sum reaches its query's limit.  Only then it writes the sums, and as
    bits which of them do.  Panels after the last are taken to be the last.
    """

    def above(
        typing: Any, queries: Any, g: Any, panels: Any, b: Any, limits: Any, masks: Any, sums: Any
    ) -> Any:
        index = types.int64
        signature = types.boolean(queries, index, panels, index, limits, masks, sums)
        return signature, _build

    def _build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def array(k: int) -> Any:
            return context.make_array(signature.args[k])(context, builder, args[k])

        def at(pointer: Any, place: Any) -> Any:
            return builder.gep(pointer, [place])

        def vector(pointer: Any) -> Any:
            return builder.bitcast(pointer, _SINGLES.as_pointer())

        def load(pointer: Any) -> Any:
            return builder.load(vector(pointer), align=4)

        def spread(pointer: Any) -> Any:
            one = builder.insert_element(_UNKNOWN, builder.load(pointer), _INT(0))
            return builder.shuffle_vector(one, _UNKNOWN, _FIRST)

        queries, panels, limits, masks, sums = (array(k) for k in (0, 2, 4, 5, 6))
        d = builder.extract_value(queries.shape, 1)
        size = builder.mul(builder.add(d, _LONG(1)), _LONG(LANES))
        last = builder.sub(builder.extract_value(panels.shape, 0), _LONG(1))
        starts = []
        for c in range(n_panels):
            b = builder.add(args[3], _LONG(c))
            b = builder.select(builder.icmp_signed("<", b, last), b, last)
            starts.append(at(panels.data, builder.mul(b, size)))
        query = at(queries.data, builder.mul(args[1], builder.mul(d, _LONG(n_queries))))
        firsts = [load(start) for start in starts]

        before, loop, after = builder.block, *(builder.append_basic_block() for _ in range(2))
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(_LONG)
        old = [builder.phi(_SINGLES) for _ in range(n_queries * n_panels)]
        following = builder.add(k, _LONG(1))
        lines = [load(at(start, builder.mul(following, _LONG(LANES)))) for start in starts]
        numbers = at(query, builder.mul(k, _LONG(n_queries)))
        new: list[Any] = []
        for r in range(n_queries):
            x = spread(at(numbers, _LONG(r)))
            for line in lines:
                product = builder.fmul(x, line, flags=["contract"])
                new.append(builder.fadd(old[len(new)], product, flags=["contract"]))
        k.add_incoming(_LONG(0), before)
        k.add_incoming(following, loop)
        for j, (a, b) in enumerate(zip(old, new, strict=True)):
            a.add_incoming(firsts[j % n_panels], before)
            a.add_incoming(b, loop)
        builder.cbranch(builder.icmp_signed("<", following, d), loop, after)

        builder.position_at_end(after)
        limit = at(limits.data, builder.mul(args[1], _LONG(n_queries)))
        bounds = [spread(at(limit, _LONG(r))) for r in range(n_queries)]
        reached = [
            builder.fcmp_ordered(">=", total, bounds[j // n_panels]) for j, total in enumerate(new)
        ]
        some = reached[0]
        for one in reached[1:]:
            some = builder.or_(some, one)
        found = builder.icmp_unsigned("!=", builder.bitcast(some, _BITS), _BITS(0))
        with builder.if_then(found, likely=False):
            for j, total in enumerate(new):
                builder.store(builder.bitcast(reached[j], _BITS), at(masks.data, _LONG(j)))
                builder.store(total, vector(at(sums.data, _LONG(j * LANES))), align=4)
        return found

    return intrinsic(above)


above_bulk = _tile(TOGETHER, 1)
above_one = _tile(1, AHEAD)
