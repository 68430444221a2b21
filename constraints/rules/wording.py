"""Words that explanations share: products with their factors, and values that would fit."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

#: How far above a refused value the next fitting one is looked for.
_SEARCH_FACTOR = 64


def product(names: Iterable[str], values: Iterable[int]) -> str:
    """``tp*cp = 4*8 = 32``: a product with its factors; a single factor stays ``tp = 4``."""
    names, numbers = tuple(names), tuple(values)
    if len(numbers) == 1:
        return f"{names[0]} = {numbers[0]}"
    factors = "*".join(map(str, numbers))
    return f"{'*'.join(names)} = {factors} = {prod(numbers)}"


def nearest_divisors(number: int, value: int) -> str:
    """The divisors of ``number`` on both sides of ``value``, as ``4 or 8``."""
    below = next(n for n in range(min(value, number), 0, -1) if number % n == 0)
    top = min(number, value * _SEARCH_FACTOR)
    above = next((n for n in range(value + 1, top + 1) if number % n == 0), None)
    return f"{below} or {above}" if above is not None else str(below)


def nearest_multiples(step: int, value: int) -> str:
    """The positive multiples of ``step`` on both sides of ``value``, as ``240 or 264``."""
    below = value // step * step
    above = below + step
    return f"{below} or {above}" if below else str(above)


def chosen(names: Iterable[str], flags: Iterable[int]) -> str:
    """The names whose flag is set, as a list: ``attn, moe_router``."""
    return ", ".join(name for name, flag in zip(names, flags, strict=True) if flag)
