"""Tiles of products that stay in the processor's registers: the innermost step of long loops.

Loops in Python's syntax give no hold on registers, so a tile is written in LLVM's vectors.  Some
rows, number by number beside each other, are multiplied with a *panel*: as many columns of a
matrix, or stored codes, as make 64 bytes, line by line.  A line is one register of AVX-512 and two
of AVX2; the number of rows is such that all sums of a tile have a register.  In a search the sums
are compared where they are made and never go to memory unless one of them matters.

Sparse rows are multiplied with rows of a matrix, a few lines of which have a register.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba.core import types
from numba.extending import intrinsic

__all__ = [
    "AHEAD",
    "LANES",
    "LINE",
    "TOGETHER",
    "above_bulk",
    "above_one",
    "add_line",
    "add_lines",
    "fetch",
    "highest",
    "lowest",
    "products",
    "spread_line",
    "spread_lines",
]

LINE = 64  # bytes of a panel's line
LANES = LINE // 4  # rows of a panel of codes
TOGETHER = 12 if binding.get_host_cpu_features().get("avx512f") else 6  # rows of a tile
AHEAD = 4  # panels that a single query is multiplied with at a time

_LONG, _INT, _BITS = ir.IntType(64), ir.IntType(32), ir.IntType(LANES)


def _sums(
    context: Any, builder: Any, signature: Any, args: Any, rows: int, n_panels: int, flags: Any
) -> tuple[Any, list[Any]]:
    """Write the loop of a tile; return helpers and its sums, those of a row beside each other.

    The first four arguments are rows (·, d, rows), which group of them, panels (·, d + 1, lanes),
    and which panel; one after the last is taken to be the last.  A sum begins with the first line
    of the panel, and the products of row and other lines are added one after the other.
    """
    x, panels = (context.make_array(signature.args[k])(context, builder, args[k]) for k in (0, 2))
    number = context.get_value_type(signature.args[0].dtype)
    width = 4 if isinstance(number, ir.FloatType) else 8
    lanes = LINE // width
    vectors = ir.VectorType(number, lanes)
    unknown = ir.Constant(vectors, ir.Undefined)
    zeros = ir.Constant(ir.VectorType(_INT, lanes), [0] * lanes)

    def at(pointer: Any, place: Any) -> Any:
        return builder.gep(pointer, [place])

    def vector(pointer: Any) -> Any:
        return builder.bitcast(pointer, vectors.as_pointer())

    def load(pointer: Any) -> Any:
        return builder.load(vector(pointer), align=width)

    def spread(pointer: Any) -> Any:
        one = builder.insert_element(unknown, builder.load(pointer), _INT(0))
        return builder.shuffle_vector(one, unknown, zeros)

    def store(value: Any, pointer: Any, place: int) -> None:
        builder.store(value, vector(at(pointer, _LONG(place * lanes))), align=width)

    d = builder.extract_value(x.shape, 1)
    size = builder.mul(builder.add(d, _LONG(1)), _LONG(lanes))
    last = builder.sub(builder.extract_value(panels.shape, 0), _LONG(1))
    starts = []
    for c in range(n_panels):
        b = builder.add(args[3], _LONG(c))
        b = builder.select(builder.icmp_signed("<", b, last), b, last)
        starts.append(at(panels.data, builder.mul(b, size)))
    row = at(x.data, builder.mul(args[1], builder.mul(d, _LONG(rows))))
    firsts = [load(start) for start in starts]

    before, loop, after = builder.block, *(builder.append_basic_block() for _ in range(2))
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(_LONG)
    old = [builder.phi(vectors) for _ in range(rows * n_panels)]
    following = builder.add(k, _LONG(1))
    lines = [load(at(start, builder.mul(following, _LONG(lanes)))) for start in starts]
    numbers = at(row, builder.mul(k, _LONG(rows)))
    new: list[Any] = []
    for r in range(rows):
        factor = spread(at(numbers, _LONG(r)))
        for line in lines:
            product = builder.fmul(factor, line, flags=flags)
            new.append(builder.fadd(old[len(new)], product, flags=flags))
    k.add_incoming(_LONG(0), before)
    k.add_incoming(following, loop)
    for j, (a, b) in enumerate(zip(old, new, strict=True)):
        a.add_incoming(firsts[j % n_panels], before)
        a.add_incoming(b, loop)
    builder.cbranch(builder.icmp_signed("<", following, d), loop, after)
    builder.position_at_end(after)
    return (at, spread, store), new


def _above(rows: int, n_panels: int) -> Any:
    """Return a function of compiled code that makes a tile and compares it.

    ``above(queries, g, panels, b, limits, masks, sums)`` takes single-precision queries
    (·, d, rows), panels (·, d + 1, LANES), limits (·, rows), masks (tiles,) and sums
    (tiles, LANES), all contiguous, tiles = rows n_panels, d ≥ 1.  For group g of the queries and
    panels b, b + 1, … it returns whether any sum reaches its query's limit.  Only then it writes
    the sums, and as bits which of them do.
    """

    def above(
        typing: Any, queries: Any, g: Any, panels: Any, b: Any, limits: Any, masks: Any, sums: Any
    ) -> Any:
        index = types.int64
        return types.boolean(queries, index, panels, index, limits, masks, sums), build

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (at, spread, store), totals = _sums(
            context, builder, signature, args, rows, n_panels, ["contract"]
        )
        limits, masks, sums = (
            context.make_array(signature.args[k])(context, builder, args[k]) for k in (4, 5, 6)
        )
        limit = at(limits.data, builder.mul(args[1], _LONG(rows)))
        bounds = [spread(at(limit, _LONG(r))) for r in range(rows)]
        reached = [
            builder.fcmp_ordered(">=", total, bounds[j // n_panels])
            for j, total in enumerate(totals)
        ]
        some = reached[0]
        for one in reached[1:]:
            some = builder.or_(some, one)
        found = builder.icmp_unsigned("!=", builder.bitcast(some, _BITS), _BITS(0))
        with builder.if_then(found, likely=False):
            for j, total in enumerate(totals):
                builder.store(builder.bitcast(reached[j], _BITS), at(masks.data, _LONG(j)))
                store(total, sums.data, j)
        return found

    return intrinsic(above)


def _products(typing: Any, X: Any, g: Any, panels: Any, b: Any, sums: Any) -> Any:
    """Write the sums of a tile of TOGETHER rows and one panel, of either precision."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # Not contracted: products are rounded before they are added, on every processor.
        (_, _, store), totals = _sums(context, builder, signature, args, TOGETHER, 1, [])
        sums = context.make_array(signature.args[4])(context, builder, args[4])
        for j, total in enumerate(totals):
            store(total, sums.data, j)
        return context.get_dummy_value()

    return types.void(X, types.int64, panels, types.int64, sums), build


def _highest(typing: Any, queries: Any, g: Any, panels: Any, b: Any, slots: Any, at: Any) -> Any:
    """Raise the numbers of ``slots[at]``, (TOGETHER, LANES), to the sums of a tile in a search."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        (at, _, store), totals = _sums(context, builder, signature, args, TOGETHER, 1, ["contract"])
        slots = context.make_array(signature.args[4])(context, builder, args[4])
        start = at(slots.data, builder.mul(args[5], _LONG(TOGETHER * LANES)))
        for j, total in enumerate(totals):
            place = builder.bitcast(at(start, _LONG(j * LANES)), total.type.as_pointer())
            old = builder.load(place, align=4)
            higher = builder.fcmp_ordered(">", total, old)
            store(builder.select(higher, total, old), start, j)
        return context.get_dummy_value()

    return types.void(queries, types.int64, panels, types.int64, slots, types.int64), build


def _along_entries(n_lines: int, spreads: bool) -> Any:
    """Return a function of compiled code that multiplies the entries of a sparse row with lines.

    ``f(indices, data, first, last, row, W, j)`` takes int32 indices and single-precision data,
    ``row`` (w,) and W (·, w), all contiguous.  Of the entries x_k from ``first`` to before ``last``
    and numbers j, j + 1, …, as many as have n_lines, it adds x_k W[k] to the row, one after the
    other; or, if it ``spreads``, x_k times the row to each W[k].
    """
    line = ir.VectorType(ir.FloatType(), LANES)

    def along(
        typing: Any, indices: Any, data: Any, first: Any, last: Any, row: Any, W: Any, j: Any
    ) -> Any:
        index = types.int64
        return types.void(indices, data, index, index, row, W, index), build

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        indices, data, row, W = (
            context.make_array(signature.args[k])(context, builder, args[k]) for k in (0, 1, 4, 5)
        )
        first, last, j = args[2], args[3], args[6]
        width = builder.extract_value(W.shape, 1)
        unknown = ir.Constant(line, ir.Undefined)
        zeros = ir.Constant(ir.VectorType(_INT, LANES), [0] * LANES)

        def lines(pointer: Any) -> list[Any]:
            places = [builder.gep(pointer, [_LONG(LANES * c)]) for c in range(n_lines)]
            return [builder.bitcast(place, line.as_pointer()) for place in places]

        own = lines(builder.gep(row.data, [j]))
        firsts = [builder.load(place, align=4) for place in own]
        before, loop, after = builder.block, *(builder.append_basic_block() for _ in range(2))
        builder.cbranch(builder.icmp_signed("<", first, last), loop, after)
        builder.position_at_end(loop)
        e = builder.phi(_LONG)
        sums = firsts if spreads else [builder.phi(line) for _ in range(n_lines)]
        k = builder.zext(builder.load(builder.gep(indices.data, [e])), _LONG)
        x = builder.insert_element(unknown, builder.load(builder.gep(data.data, [e])), _INT(0))
        x = builder.shuffle_vector(x, unknown, zeros)
        others = lines(builder.gep(W.data, [builder.add(builder.mul(k, width), j)]))
        # Not contracted: products are rounded before they are added, on every processor.
        new = []
        for place, total in zip(others, sums, strict=True):
            other = builder.load(place, align=4)
            if spreads:
                builder.store(builder.fadd(other, builder.fmul(x, total)), place, align=4)
            else:
                new.append(builder.fadd(total, builder.fmul(x, other)))
        following = builder.add(e, _LONG(1))
        e.add_incoming(first, before)
        e.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, last), loop, after)
        builder.position_at_end(after)
        ends = [builder.phi(line) for _ in new]
        for total, end, at_first, made in zip(sums, ends, firsts, new, strict=False):
            for one in (total, end):
                one.add_incoming(at_first, before)
                one.add_incoming(made, loop)
        for end, place in zip(ends, own, strict=False):
            builder.store(end, place, align=4)
        return context.get_dummy_value()

    return intrinsic(along)


def _fetch(typing: Any, array: Any, i: Any) -> Any:
    """Tell the processor that the numbers from place i of an array on will be wanted soon."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        place = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [place.type, _INT, _INT, _INT])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        builder.call(prefetch, [place, _INT(0), _INT(3), _INT(1)])  # to read, and to keep
        return context.get_dummy_value()

    return types.void(array, types.int64), build


def _lowest(typing: Any, bits: Any) -> Any:
    """Return the number of the lowest bit that is set; one must be."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), build


products: Any = intrinsic(_products)
highest: Any = intrinsic(_highest)
lowest: Any = intrinsic(_lowest)
fetch: Any = intrinsic(_fetch)
above_bulk = _above(TOGETHER, 1)
above_one = _above(1, AHEAD)
add_line, add_lines = _along_entries(1, False), _along_entries(2, False)
spread_line, spread_lines = _along_entries(1, True), _along_entries(2, True)
