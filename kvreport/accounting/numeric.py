"""Array functions that also take plain numbers. numpy is imported only where an array is met.

One estimate is a handful of numbers, the published matrix is millions of rows, and both go through the same
formulas. With plain numbers in, these functions return plain numbers and need nothing but Python: that is what
lets the scalar path run in a browser, where numpy is not available. With an array in, they are numpy's.

Return types say array, because that is what most callers hold; plain numbers come back for plain numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, reduce
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    ArrayLike = npt.ArrayLike
    Numbers = npt.NDArray[Any]
    Integers = npt.NDArray[np.int64]
    Reals = npt.NDArray[np.float64]
    Codes = npt.NDArray[np.int8]
else:
    ArrayLike = Numbers = Integers = Reals = Codes = Any

A = TypeVar("A", bound="Numbers")

NAN = math.nan
INFINITY = math.inf
# Asked by itself where it is asked most: a call of `is_plain` takes longer than all else that is done for one number.
_PLAIN = (int, float)


def is_plain(*values: object) -> bool:
    """True if every value is a Python number (or a numpy float, which is one)."""
    # A loop: this is asked hundreds of thousands of times, and a generator costs more than its answers.
    for value in values:  # noqa: SIM110
        if not isinstance(value, _PLAIN):
            return False
    return True


def is_fixed(values: Any) -> bool:  # noqa: ANN401
    """True of an array that cannot be written to, so that what is made from it stays true of it."""
    return not is_plain(values) and not values.flags.writeable


def fixed(values: A) -> A:
    """The array itself, which cannot be written to from here on."""
    values.flags.writeable = False
    return values


@cache
def on_arrays(formula: Callable[..., Any]) -> Callable[..., Any]:
    """The same formula of plain numbers for arrays: its ``min``, ``max`` and ``round`` are numpy's.

    ``formula``: a function; those of its module that it calls are taken likewise. What they decide on
    must be plain numbers.
    """
    np = numpy()
    own: dict[str, Callable[..., Any]] = {
        "max": lambda *values: reduce(np.maximum, values),
        "min": lambda *values: reduce(np.minimum, values),
        "round": lambda values: integers(np.rint(values)),
    }
    assert isinstance(formula, FunctionType)  # noqa: S101 - formulas are functions
    for name in formula.__code__.co_names:
        called = formula.__globals__.get(name)
        if isinstance(called, FunctionType) and called.__module__ == formula.__module__:
            own[name] = on_arrays(called)
    return FunctionType(formula.__code__, formula.__globals__ | own, formula.__name__)


@cache
def numpy() -> Any:  # noqa: ANN401 - the module
    """Numpy itself, for code that only ever meets arrays. Imported when first asked for."""
    return import_module("numpy")


def _typed(plain: type, dtype: str) -> Callable[[Any], Any]:
    def typed(values: Any) -> Any:  # noqa: ANN401 - a number, an array or what becomes one
        if type(values) is plain:
            return values
        return plain(values) if isinstance(values, _PLAIN) else numpy().asarray(values, dtype=dtype)

    return typed


def _two(plain: Callable[[Any, Any], Any], name: str) -> Callable[[Any, Any], Numbers]:
    def both(first: Any, second: Any) -> Any:  # noqa: ANN401
        if isinstance(first, _PLAIN) and isinstance(second, _PLAIN):
            return plain(first, second)
        return getattr(numpy(), name)(first, second)

    return both


def _rounded(plain: Callable[[Any], int], name: str) -> Callable[[Any], Reals]:
    def rounded(values: Any) -> Any:  # noqa: ANN401
        if is_plain(values):
            return float(plain(values)) if math.isfinite(values) else values
        return getattr(numpy(), name)(values)

    return rounded


def _asked(plain: Callable[[Any], bool], name: str) -> Callable[[Any], Any]:
    def asked(values: Any) -> Any:  # noqa: ANN401
        return plain(values) if is_plain(values) else getattr(numpy(), name)(values)

    return asked


integers: Callable[[Any], Integers] = _typed(int, "int64")
"""Values as whole numbers: an ``int``, or an int64 array."""
codes: Callable[[Any], Codes] = _typed(int, "int8")
"""Values as small codes: an ``int``, or an int8 array."""
reals: Callable[[Any], Reals] = _typed(float, "float64")
"""Values as real numbers: a ``float``, or a float64 array."""
maximum = _two(max, "maximum")
"""The larger of two, elementwise."""
minimum = _two(min, "minimum")
"""The smaller of two, elementwise."""
floor = _rounded(math.floor, "floor")
"""Rounded down, still real."""
ceil = _rounded(math.ceil, "ceil")
"""Rounded up, still real."""
trunc = _rounded(math.trunc, "trunc")
"""Rounded toward 0, still real."""
rint = _rounded(round, "rint")
"""Rounded to the nearest integer, a half to the even one, still real."""
isnan = _asked(math.isnan, "isnan")
"""True where a value is not a number."""
isfinite = _asked(math.isfinite, "isfinite")
"""True where a value is a finite number."""


def full_like(values: Any, value: Any) -> Numbers:  # noqa: ANN401
    """``value`` in the shape of ``values``."""
    if is_plain(values):
        return cast("Numbers", value)
    found = numpy()
    return cast("Numbers", found.full(found.shape(values), value))


def fmax(first: Any, second: Any) -> Numbers:  # noqa: ANN401
    """The larger of two, elementwise; the other one where one is not a number."""
    if is_plain(first, second):
        if math.isnan(first) or math.isnan(second):
            return cast("Numbers", second if math.isnan(first) else first)
        return cast("Numbers", max(first, second))
    return cast("Numbers", numpy().fmax(first, second))


def any_of(values: Any) -> bool:  # noqa: ANN401
    """Whether any element is true."""
    return bool(values) if is_plain(values) else bool(numpy().any(values))


def least(values: Any) -> Any:  # noqa: ANN401
    """The smallest element."""
    return values if is_plain(values) else numpy().min(values)


def where(condition: Any, then: Any, otherwise: Any) -> Numbers:  # noqa: ANN401
    """``then`` where the condition holds, else ``otherwise``."""
    if is_plain(condition, then, otherwise):
        return cast("Numbers", then if condition else otherwise)
    return cast("Numbers", numpy().where(condition, then, otherwise))


def select(conditions: Sequence[Any], choices: Sequence[int], default: int) -> Codes:
    """The choice of the first condition that holds, else the default; all are small codes."""
    if is_plain(*conditions):
        found = (choice for condition, choice in zip(conditions, choices, strict=True) if condition)
        return cast("Codes", int(next(found, default)))
    # numpy's own `select` broadcasts every choice first, which for plain numbers is most of its time.
    np = numpy()
    chosen = np.full(np.broadcast_shapes(*map(np.shape, conditions)), int(default), dtype="int8")
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        np.copyto(chosen, int(choice), where=condition)
    return cast("Codes", chosen)


def logical_not(values: Any) -> Any:  # noqa: ANN401
    """The opposite truth (``~`` of a Python bool is a number)."""
    return not values if is_plain(values) else ~values


def divide(first: Any, second: Any) -> Reals:  # noqa: ANN401
    """The quotient; infinite or not a number where the divisor is 0, as numpy has it, without its warning."""
    if is_plain(first, second):
        if second:
            return cast("Reals", first / second)
        return cast("Reals", math.copysign(INFINITY, first) if first else NAN)
    found = numpy()
    with found.errstate(divide="ignore", invalid="ignore"):
        return cast("Reals", found.divide(first, second))


def log10(values: Any) -> Reals:  # noqa: ANN401
    """The decimal logarithm; minus infinity of 0."""
    if is_plain(values):
        return cast("Reals", math.log10(values) if values else -INFINITY)
    return cast("Reals", numpy().log10(values))


def spread_over(values: Any, others: Any) -> Any:  # noqa: ANN401
    """The values in the shape of others that are not plain, as an array of its own."""
    return values if is_plain(others) else numpy().array(numpy().broadcast_to(values, numpy().shape(others)))


def broadcast(*values: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """The values in one shape; plain numbers stay plain if all are."""
    return values if is_plain(*values) else tuple(numpy().broadcast_arrays(*values))
