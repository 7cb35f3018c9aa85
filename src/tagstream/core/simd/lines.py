"""Lines: eight numbers that stay beside each other in the processor's registers.

Compiled loops over a few labels, or over the dozen numbers of a label's evidence, are too short for
LLVM to vectorise: it takes one number after the other.  A *line* is one value of compiled code that
stands for eight numbers in double precision: one register of AVX-512, two of AVX2.  It is loaded
from an array and stored to one, of either precision; where fewer than eight numbers are left, only
these are touched, and the others count as zero.  (To load what was stored like that takes long if
it follows at once: arrays that are read and written in turns have room for whole lines.)  Products
are rounded before they are added, on every processor.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.cgutils import get_or_insert_function
from numba.core.errors import TypingError
from numba.extending import intrinsic, models, register_model

__all__ = [
    "WIDTH",
    "add",
    "divide",
    "load",
    "logarithm",
    "multiply",
    "sigmoid",
    "spread",
    "store",
    "store_small",
    "total",
]

WIDTH = 8

_INT, _LONG, _BIT = ir.IntType(32), ir.IntType(64), ir.IntType(1)
_LINE = ir.VectorType(ir.DoubleType(), WIDTH)
_MASK = ir.VectorType(_BIT, WIDTH)


class _Line(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Line")


@register_model(_Line)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _LINE)  # type: ignore[no-untyped-call]


_line = _Line()


def _spread(builder: Any, number: Any) -> Any:
    none = ir.Constant(ir.VectorType(number.type, WIDTH), ir.Undefined)
    one = builder.insert_element(none, number, _INT(0))
    return builder.shuffle_vector(one, none, ir.Constant(ir.VectorType(_INT, WIDTH), [0] * WIDTH))


def _place(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> tuple[Any, Any]:
    """Return a pointer to eight numbers of an array from number ``at`` on, and their type."""
    data = context.make_array(kind)(context, builder, array).data
    numbers = ir.VectorType(context.get_value_type(kind.dtype), WIDTH)
    return builder.bitcast(builder.gep(data, [at]), numbers.as_pointer()), numbers


def _mask(builder: Any, n: Any) -> Any:
    """Return which of eight numbers are among the first ``n``."""
    places = ir.Constant(ir.VectorType(_LONG, WIDTH), list(range(WIDTH)))
    return builder.icmp_signed("<", places, _spread(builder, n))


def _masked(builder: Any, what: str, numbers: Any, wanted: Any) -> Any:
    """Return LLVM's function that touches only what a mask says."""
    name = "v8f64" if numbers == _LINE else "v8f32"
    name = f"llvm.masked.{what}.{name}.p0{name}"
    return get_or_insert_function(builder.module, wanted, name)  # type: ignore[no-untyped-call]


def _contiguous(array: Any) -> Any:
    if array.layout != "C":
        raise TypingError(f"a line must be of a contiguous array, got {array}")
    return array


def _load(typing: Any, array: Any, at: Any, n: Any) -> Any:
    """Return the numbers of a contiguous array from number ``at`` on, of which there are ``n``."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place, numbers = _place(context, builder, signature.args[0], args[0], args[1])
        wanted = ir.FunctionType(numbers, [place.type, _INT, _MASK, numbers])
        read = _masked(builder, "load", numbers, wanted)
        zeros = ir.Constant(numbers, [0.0] * WIDTH)
        align = _INT(signature.args[0].dtype.bitwidth // 8)
        line = builder.call(read, [place, align, _mask(builder, args[2]), zeros])
        return line if numbers == _LINE else builder.fpext(line, _LINE)

    return _line(_contiguous(array), types.int64, types.int64), build


def _store(builder: Any, line: Any, place: Any, mask: Any, width: int) -> None:
    wanted = ir.FunctionType(ir.VoidType(), [line.type, place.type, _INT, _MASK])
    write = _masked(builder, "store", line.type, wanted)
    builder.call(write, [line, place, _INT(width), mask])


def _store_line(typing: Any, array: Any, at: Any, n: Any, line: Any) -> Any:
    """Write a line to a contiguous array in double precision, as :func:`_load` reads it."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place, _ = _place(context, builder, signature.args[0], args[0], args[1])
        _store(builder, args[3], place, _mask(builder, args[2]), WIDTH)
        return context.get_dummy_value()

    return types.void(_contiguous(array), types.int64, types.int64, _line), build


def _store_small(typing: Any, array: Any, at: Any, n: Any, line: Any, limit: Any) -> Any:
    """Write to an array in single precision what of a line lies within ±``limit``."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place, numbers = _place(context, builder, signature.args[0], args[0], args[1])
        limit, mask = _spread(builder, args[4]), _mask(builder, args[2])
        mask = builder.and_(mask, builder.fcmp_ordered("<=", args[3], limit))
        mask = builder.and_(mask, builder.fcmp_ordered(">=", args[3], builder.fneg(limit)))
        _store(builder, builder.fptrunc(args[3], numbers), place, mask, 4)
        return context.get_dummy_value()

    numbers = types.int64, types.int64
    return types.void(_contiguous(array), *numbers, _line, types.float64), build


def _spread_to_line(typing: Any, number: Any) -> Any:
    """Return a line of eight times the same number."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _spread(builder, args[0])

    return _line(types.float64), build


def _of_two(operation: str) -> Any:
    """Return a function of two lines."""

    def made(typing: Any, one: Any, other: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, operation)(*args)

        return _line(_line, _line), build

    return intrinsic(made)


def _total(typing: Any, line: Any) -> Any:
    """Return the sum of a line: of its halves, of theirs, and so on."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        line, n = args[0], WIDTH
        while n > 1:
            n //= 2
            none = ir.Constant(line.type, ir.Undefined)
            halves = [
                builder.shuffle_vector(
                    line, none, ir.Constant(ir.VectorType(_INT, n), list(range(first, first + n)))
                )
                for first in (0, n)
            ]
            line = builder.fadd(*halves)
        return builder.extract_element(line, _INT(0))

    return types.float64(_line), build


# Coefficients of fdlibm's e_log.c and e_exp.c (Sun Microsystems, 1993), from the last on.
_LOG = (
    1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
    2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
    6.666666666666735130e-01,
)  # fmt: skip
_EXP = (
    4.13813679705723846039e-08, -1.65339022054652515390e-06, 6.61375632143793436117e-05,
    -2.77777777770155933842e-03, 1.66666666666666019037e-01,
)  # fmt: skip
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_ROOT_HALF = 0x3FE6A09E667F3BCD  # the bits of √½
_EXPONENT = 0xFFF << 52


class _Formula:
    """Arithmetic on lines as LLVM takes it; numbers stand for lines of themselves."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def _line(self, x: Any) -> Any:
        return ir.Constant(_LINE, [x] * WIDTH) if isinstance(x, float) else x

    def add(self, x: Any, y: Any) -> Any:
        return self.builder.fadd(self._line(x), self._line(y))

    def subtract(self, x: Any, y: Any) -> Any:
        return self.builder.fsub(self._line(x), self._line(y))

    def multiply(self, x: Any, y: Any) -> Any:
        return self.builder.fmul(self._line(x), self._line(y))

    def divide(self, x: Any, y: Any) -> Any:
        return self.builder.fdiv(self._line(x), self._line(y))

    def polynomial(self, z: Any, coefficients: tuple[float, ...]) -> Any:
        """Return z times a polynomial in z, its coefficients from the last on."""
        value: Any = 0.0
        for coefficient in coefficients:
            value = self.multiply(z, self.add(coefficient, value))
        return value


def _longs(number: int) -> Any:
    return ir.Constant(ir.VectorType(_LONG, WIDTH), [number] * WIDTH)


def _logarithm(builder: Any, x: Any) -> Any:
    """Return ln x = k ln 2 + ln(1 + f), where 1 + f lies between √½ and √2."""
    do, whole = _Formula(builder), ir.VectorType(_LONG, WIDTH)
    bits = builder.bitcast(x, whole)
    above = builder.sub(bits, _longs(_ROOT_HALF))
    k = builder.sitofp(builder.ashr(above, _longs(52)), _LINE)
    rest = builder.sub(bits, builder.and_(above, _longs(_EXPONENT - (1 << 64))))
    f = do.subtract(builder.bitcast(rest, _LINE), 1.0)
    half = do.multiply(do.multiply(0.5, f), f)
    s = do.divide(f, do.add(2.0, f))
    more = do.polynomial(do.multiply(s, s), _LOG)
    small = do.add(do.multiply(s, do.add(half, more)), do.multiply(k, _LN2_LOW))
    near = do.subtract(do.subtract(half, small), f)
    return do.subtract(do.multiply(k, _LN2_HIGH), near)


def _exponential(builder: Any, x: Any) -> Any:
    """Return eˣ = 2ᵏ eʳ, where r lies within ±½ ln 2, for x within ±700."""
    do, whole = _Formula(builder), ir.VectorType(_LONG, WIDTH)
    shift = 1.5 * 2.0**52  # a number of this size has no digits behind the point
    moved = do.add(do.multiply(x, 1.44269504088896338700), shift)
    k = do.subtract(moved, shift)
    high, low = do.subtract(x, do.multiply(k, _LN2_HIGH)), do.multiply(k, _LN2_LOW)
    r = do.subtract(high, low)
    c = do.subtract(r, do.polynomial(do.multiply(r, r), _EXP))
    quotient = do.divide(do.multiply(r, c), do.subtract(2.0, c))
    y = do.subtract(1.0, do.subtract(do.subtract(low, quotient), high))
    power = builder.shl(builder.bitcast(moved, whole), _longs(52))
    return builder.bitcast(builder.add(builder.bitcast(y, whole), power), _LINE)


def _of_one(formula: Any) -> Any:
    """Return a function of one line."""

    def made(typing: Any, line: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return formula(builder, args[0])

        return _line(_line), build

    return intrinsic(made)


def _sigmoid(builder: Any, x: Any) -> Any:
    """Return 1/(1 + e⁻ˣ); beyond ±700, what it is there."""
    do = _Formula(builder)
    for sign, limit in ((">", 700.0), ("<", -700.0)):
        bound = ir.Constant(_LINE, [limit] * WIDTH)
        x = builder.select(builder.fcmp_ordered(sign, x, bound), bound, x)
    return do.divide(1.0, do.add(1.0, _exponential(builder, builder.fneg(x))))


load: Any = intrinsic(_load)
store: Any = intrinsic(_store_line)
store_small: Any = intrinsic(_store_small)
spread: Any = intrinsic(_spread_to_line)
add, multiply, divide = _of_two("fadd"), _of_two("fmul"), _of_two("fdiv")
total: Any = intrinsic(_total)
logarithm, sigmoid = _of_one(_logarithm), _of_one(_sigmoid)
