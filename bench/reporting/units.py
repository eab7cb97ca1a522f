"""How numbers and lists are written, everywhere: three significant digits, units, intervals."""

import functools
import math
from collections.abc import Callable, Sequence

from bench.records.effects import Effect, EffectKind

NO_DATA = "no data"

_BINARY = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes"))
_DECIMAL_RATE = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1, "bytes/s"))
_TIME = ((1, "s"), (1e-3, "ms"), (1e-6, "µs"))
_SCALES = {"bytes": _BINARY, "bytes/s": _DECIMAL_RATE, "s": _TIME}


def number(value: float, digits: int = 3) -> str:
    """``value`` with ``digits`` significant digits and no exponent: ``1,520``, ``0.0123``."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, places):,.{max(places, 0)}f}".replace("-", "−")


def quantity(value: float | None, unit: str) -> str:
    """A value with its unit, scaled where people do so: ``172 MiB``, ``12.3 ms``, ``no data``.

    Memory goes by powers of 1024, rates of bytes by powers of 1000, as vendors give them.
    """
    if value is None:
        return NO_DATA
    factor, shown_unit = scale(value, unit)
    return f"{number(value / factor)} {shown_unit}"


def scale(value: float, unit: str) -> tuple[float, str]:
    """The factor and unit to show ``value`` in: ``(2**20, "MiB")`` for 172e6 bytes."""
    steps = _SCALES.get(unit, ((1, unit),))
    return next((step for step in steps if abs(value) >= step[0]), steps[-1])


def effect_text(row: Effect, *, with_unit: bool = True, with_interval: bool = True) -> str:
    """``1.52× [1.48, 1.56]`` for a ratio, ``+1.2 points [0.4, 2.0]`` for a difference.

    Where less is better a difference is worded, ``1.2 MiB less [1.0, 1.4]``. Without an interval
    (one replicate) only the effect; empty without an effect. ``with_unit`` false leaves a
    difference's unit out, where the value beside it has it and neither is scaled. ``with_interval``
    false leaves the interval out, and decimals that only it calls for.
    """
    return estimate_text(
        row.effect,
        row.ci_low,
        row.ci_high,
        kind=row.effect_kind,
        unit=row.unit if with_unit or row.unit in _SCALES else "",
        with_interval=with_interval,
        is_worded=row.effect_kind == "difference" and row.higher_is_better is False,
    )


def estimate_text(
    estimate: float | None,
    low: float | None,
    high: float | None,
    *,
    kind: EffectKind,
    unit: str = "",
    with_interval: bool = True,
    is_worded: bool = False,
) -> str:
    """A ratio or a difference with its interval, as :func:`effect_text` writes an effect."""
    if estimate is None:
        return ""
    is_ratio = kind == "ratio"
    if not is_ratio:
        sign = -1 if is_worded and estimate < 0 else 1
        factor, unit = scale(estimate, unit)
        low, high = [None if end is None else sign * end / factor for end in (low, high)][::sign]
        estimate = sign * estimate / factor
        if is_worded:
            unit = f"{unit} {'more' if sign < 0 else 'less'}".strip()
    places = _places(low, high) if with_interval else min(_places(low, high), 2)
    plus = "+" if estimate > 0 and not is_ratio and not is_worded else ""
    write = functools.partial(_ratio if is_ratio else _fixed, places=places)
    told = f"{plus}{write(estimate)}{'×' if is_ratio else ''}"
    ends = (low, high) if with_interval else (None, None)
    return _with_interval(told, *ends, write, "" if is_ratio else unit)


def price_text(row: Effect, *, with_interval: bool = True) -> str:
    """The ratio of a tip that is a price: ``costs 4 % [3, 5]`` of the speed, or ``gains``."""
    if row.effect is None:
        return ""
    cost, low, high = (
        None if value is None else 100 * (1 - value)
        for value in (row.effect, row.ci_high, row.ci_low)
    )
    assert cost is not None
    verb = "costs" if cost >= 0 else "gains"
    if cost < 0:
        low, high = (None if high is None else -high), (None if low is None else -low)
    width = None if low is None or high is None else high - low
    places = 0 if width is None or width >= 2 else 1
    ends = (low, high) if with_interval else (None, None)
    write = functools.partial(_fixed, places=places)
    return _with_interval(f"{verb} {write(abs(cost))} %", *ends, write, "")


def interval_text(
    row: Effect, *, is_price: bool, with_unit: bool = True, with_interval: bool = True
) -> str:
    """The effect as the tip is meant: a gain, or what it costs on the primary metric."""
    if is_price and row.is_primary and row.effect_kind == "ratio":
        return price_text(row, with_interval=with_interval)
    return effect_text(row, with_unit=with_unit, with_interval=with_interval)


def percent(fraction: float) -> str:
    """``3 %``, ``2.5 %``."""
    return f"{100 * fraction:.3g} %"


def margin_text(row: Effect) -> str:
    """The row's margin: ``±3 %`` for a ratio, ``±0.5 points`` for a difference."""
    if row.margin is None:
        return ""
    if row.effect_kind == "ratio":
        return f"±{percent(row.margin)}"
    return f"±{row.margin:g} {row.unit}"


def listed(names: Sequence[str], most: int = 99) -> str:
    """``a``, ``a and b``, ``a, b and c``; after ``most`` names the number of the others."""
    if len(names) > most:
        names = [*names[:most], f"{len(names) - most} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _places(low: float | None, high: float | None) -> int:
    """Decimals that show the interval's half-width with one digit at least, two where it fits."""
    if low is None or high is None or math.isclose(low, high, rel_tol=1e-6):
        return 2
    half_width = (high - low) / 2
    if half_width < 0.005:
        return 3
    return min(max(1 - math.floor(math.log10(half_width)), 0), 2)


def _with_interval(
    text: str, low: float | None, high: float | None, write: Callable[[float], str], unit: str
) -> str:
    unit = f" {unit}" if unit else ""
    if low is None or high is None:
        return f"{text}{unit}"
    return f"{text}{unit} [{write(low)}, {write(high)}]"


def _ratio(value: float, places: int) -> str:
    """As :func:`_fixed`; a ratio that would read 0 keeps a digit, down to 0.001."""
    if value >= 0.001 and round(value, places) == 0:
        return number(value, 1)
    return _fixed(value, places)


def _fixed(value: float, places: int) -> str:
    """``value`` with ``places`` decimals, a true minus sign, and no minus before a zero."""
    return f"{round(value, places) + 0.0:.{places}f}".replace("-", "−")
