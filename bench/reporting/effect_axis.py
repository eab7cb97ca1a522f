"""The axis that effects are drawn on: ratios by logarithm, differences in margins."""

import dataclasses
import math
from collections.abc import Sequence

from matplotlib.axes import Axes

from bench.records.effects import EffectKind
from bench.reporting import drawing
from bench.reporting.drawing import WIDTH, Row
from bench.reporting.units import percent

_LINEAR_UP_TO = 0.1
"""Log ratios up to this (about 10 %) are drawn to scale, larger ones ever closer together: one
axis shows the margin and a tenfold gain."""
_RATIO_TICKS = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 0.7, 0.85, 0.95, 1,
    1.05, 1.15, 1.4, 2, 3, 5, 10, 20, 50, 100,
)  # fmt: skip
_DIFFERENCE_TICKS = (-100, -30, -10, -5, -3, -1, 0, 1, 3, 5, 10, 30, 100)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EffectAxis:
    """How effects of one kind are placed. ``bound``: half the band of the margin, 0 for none.

    ``says`` is what to write below it.
    """

    kind: EffectKind
    linear_up_to: float
    bound: float
    ticks: dict[float, str]
    says: str

    def begin(self, axes: Axes) -> None:
        """The scale, the margin's band and the line of no effect."""
        axes.set_xscale("asinh", linear_width=self.linear_up_to)
        if self.bound:
            axes.axvspan(-self.bound, self.bound, color=drawing.BAND, lw=0)
        axes.axvline(0, color=drawing.GREY, lw=0.8)

    def place(self, effect: float, margin: float | None) -> float:
        """Where ``effect`` lies."""
        return math.log(effect) if self.kind == "ratio" else effect / (margin or 1)

    def cut(self, place: float) -> float:
        """``place``, or the end of what is drawn."""
        return min(max(place, -self._most), self._most)

    def draw(self, axes: Axes, row: Row, marker: str, color: str, *, is_filled: bool) -> float:
        """Draw the row's effect with its interval; how far from no effect that reaches."""
        effect = row.effect
        if effect is None or effect.effect is None:
            return 0.0
        point = self.cut(self.place(effect.effect, effect.margin))
        ends = (point, point)
        if effect.ci_low is not None and effect.ci_high is not None:
            low, high = effect.ci_low, effect.ci_high
            ends = (self.place(low, effect.margin), self.place(high, effect.margin))
            drawing.draw_interval(axes, row.center, ends, (-self._most, self._most), color=color)
        axes.plot(
            point, row.center, marker, color=color, ms=6.5, zorder=5,
            mfc=color if is_filled else "white", clip_on=False,
        )  # fmt: skip
        return max(abs(point), *(abs(self.cut(end)) for end in ends))

    def end(self, axes: Axes, reach: float, label_inches: float) -> None:
        """The limits, so that ``reach`` fits on both sides, the ticks, and what the axis says."""
        reach = max(reach, 2 * self.bound, 0.5 * self.linear_up_to)
        axes.set_xlim(-1.15 * reach, 1.15 * reach)
        _set_ticks(axes, self.ticks)
        axes.set_xlabel(drawing.wrap(self.says, label_inches))

    @property
    def _most(self) -> float:
        """Beyond this an interval or a dot is cut, and an arrow head says so."""
        return 50 * self.linear_up_to


def effect_axes(margins: Sequence[float | None]) -> tuple[EffectAxis, EffectAxis]:
    """The axis of ratios and that of differences; no band where no margin is known."""
    known = [margin for margin in margins if margin is not None]
    band = f" Band: ±{percent(max(known))}." if known else ""
    ratios = EffectAxis(
        kind="ratio",
        linear_up_to=_LINEAR_UP_TO,
        bound=math.log1p(max(known)) if known else 0.0,
        ticks={math.log(tick): f"{tick:g}×" for tick in _RATIO_TICKS},
        says="variant / baseline, or baseline / variant where less is better; right is better."
        f"{band} Large effects are drawn closer together.",
    )
    differences = EffectAxis(
        kind="difference",
        linear_up_to=3,
        bound=1.0 if known else 0.0,
        ticks={tick: f"{tick:+g}".replace("-", "−") if tick else "0" for tick in _DIFFERENCE_TICKS},
        says="difference from the baseline"
        + (", in margins of the row. Band: ±1 margin." if known else ".")
        + " Right is better.",
    )
    return ratios, differences


def _set_ticks(axes: Axes, labels: dict[float, str]) -> None:
    """Those ticks that fit without touching, from no effect outwards."""
    drawn = axes.transData
    low, high = axes.get_xlim()
    width = axes.get_position().width * WIDTH
    left, right = (drawn.transform((end, 0))[0] for end in (low, high))
    kept: dict[float, tuple[float, float]] = {}
    for tick in sorted((tick for tick in labels if low <= tick <= high), key=abs):
        center = (drawn.transform((tick, 0))[0] - left) / (right - left) * width
        half = drawing.text_width(labels[tick]) / 2 + 0.06
        if all(center + half < start or end < center - half for start, end in kept.values()):
            kept[tick] = (center - half, center + half)
    axes.set_xticks(list(kept), [labels[tick] for tick in kept])
    axes.minorticks_off()
