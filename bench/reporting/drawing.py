"""What every picture shares: style, fonts, colours, wrapping by measured width, saving.

Figures are laid out in inches from measured text, so that no text is cut or overlaps another.
"""

import bisect
import contextlib
import dataclasses
import functools
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from bench.records.effects import Effect

WIDTH = 10.0
"""Inches of every picture: 1,000 px, saved as 2,000."""

TEXT = 9.5
"""Points: still 9 px where a page shows the picture 700 px wide."""
TITLE = 13.0
LINE = TEXT * 1.25 / 72
"""Inches from one line of text to the next."""

EDGE = 0.15
"""Inches of white around a picture and between its parts."""

BLUE, ORANGE, SKY, PALE, GREY, DARK = (
    "#0072B2", "#D55E00", "#7DB8DE", "#D3E6F3", "#8C8C8C", "#222222",
)  # fmt: skip
FAINT = "#6B6B6B"
BAND = "#EAE3C8"

_FALLBACK_FONTS = (
    "Noto Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "PingFang SC",
    "Hiragino Sans",
    "Apple SD Gothic Neo",
    "Microsoft YaHei",
    "SimHei",
    "Yu Gothic",
    "Malgun Gothic",
    "Arial Unicode MS",
    "Unifont",
)


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The look of all pictures, with the fonts for other scripts that this machine has."""
    with (
        mpl.rc_context(fname=Path(__file__).with_name("bench.mplstyle")),
        mpl.rc_context({"font.family": list(_families())}),
        warnings.catch_warnings(),
    ):
        # A script without a font is drawn as boxes in the PNG; the SVG and the tables hold it.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from", category=UserWarning)
        yield


@functools.cache
def text_width(text: str, size: float = TEXT, weight: str = "normal") -> float:
    """Inches that ``text``, one line, takes inside :func:`style`."""
    font = FontProperties(family=list(_families()), size=size, weight=weight)
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, False)
    return width / 72


def wrap(text: str, inches: float, size: float = TEXT, weight: str = "normal") -> str:
    """``text`` with line ends so that no line is wider than ``inches``; long words are broken."""
    space = text_width("n n", size, weight) - text_width("nn", size, weight)
    lines: list[str] = []
    free = 0.0
    for word in text.split():
        pieces = _broken(word, inches, size, weight)
        for index, piece in enumerate(pieces):
            width = text_width(piece, size, weight)
            if lines and not index and space + width <= free:
                lines[-1] += f" {piece}"
                free -= space + width
            else:
                lines.append(piece)
                free = inches - width
    return "\n".join(lines)


def line_count(text: str) -> int:
    """How many lines ``text`` has."""
    return text.count("\n") + 1


def text_height(text: str, size: float = TEXT) -> float:
    """Inches that the lines of ``text`` take."""
    return line_count(text) * size * 1.25 / 72


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a picture that reads like a table: a label, something drawn, words beside it.

    ``effect`` is None for a heading. ``inside`` stands where nothing can be drawn. ``center`` and
    ``height`` are inches, counted from the top of the axes.
    """

    label: str
    words: str = ""
    inside: str = ""
    weight: str = "normal"
    effect: Effect | None = None
    center: float = 0.0
    height: float = 0.0


def stack(rows: Sequence[Row], *, pad: float = 0.16) -> list[Row]:
    """The rows with their places, each as high as its longest text needs."""
    placed, top = [], 0.0
    for row in rows:
        lines = max(map(line_count, (row.label, row.words, row.inside)))
        height = lines * LINE + pad
        placed.append(dataclasses.replace(row, center=top + height / 2, height=height))
        top += height
    return placed


def total_height(rows: Sequence[Row]) -> float:
    """Inches that placed rows take."""
    return sum(row.height for row in rows)


def write_rows(axes: Axes, rows: Sequence[Row], *, labels: bool = True) -> None:
    """Set the y axis to the rows and write their labels at the left, their words at the right."""
    axes.set_ylim(total_height(rows), 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    side = axes.get_yaxis_transform()
    width = axes.get_position().width * WIDTH
    gap = 0.08 / width
    for row in rows:
        for line, text in enumerate(row.label.split("\n") if labels else ()):
            # Line by line, so that a viewer's other font leaves them aligned at the right.
            above = (line_count(row.label) - 1) / 2 - line
            axes.text(
                -gap, row.center - above * LINE, text, transform=side, ha="right", va="center",
                weight=row.weight, color=FAINT if row.inside else DARK,
            )  # fmt: skip
        axes.text(1 + gap, row.center, row.words, transform=side, va="center")
        if row.inside:
            axes.text(
                gap, row.center, row.inside, transform=side, va="center", color=FAINT,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            )  # fmt: skip


def draw_interval(
    axes: Axes,
    place: float,
    ends: tuple[float, float],
    limits: tuple[float, float],
    *,
    color: str = DARK,
    is_upright: bool = False,
) -> None:
    """A line with caps from end to end; an end beyond ``limits`` is cut, with an arrow head.

    ``place`` is where on the other axis. A white edge keeps it apart from what lies behind it.
    """
    shown = [min(max(end, limits[0]), limits[1]) for end in ends]
    cap, heads = ("_", "v^") if is_upright else ("|", "<>")
    markers = [
        cap if end == cut else head for end, cut, head in zip(ends, shown, heads, strict=True)
    ]
    for colour, more in (("white", 1.8), (color, 0.0)):
        for along, style in ((shown, "-"), (shown[:1], markers[0]), (shown[1:], markers[1])):
            across = [place] * len(along)
            points = (across, along) if is_upright else (along, across)
            axes.plot(
                *points, style, color=colour, lw=1.4 + more, mew=1.4 + more, ms=6 + more,
                zorder=4, clip_on=False, solid_capstyle="butt",
            )  # fmt: skip


def tick_text(value: float, place: int | None = None) -> str:
    """A number on an axis, as matplotlib's FuncFormatter asks for it: ``1,250``, ``−0.5``."""
    return f"{value:,.6g}".replace("-", "−")


def inches_axes(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at ``left`` and ``top`` inches from the picture's upper left corner."""
    tall = figure.get_figheight()
    return figure.add_axes(
        (left / WIDTH, (tall - top - height) / tall, width / WIDTH, height / tall)
    )


def write_text(
    figure: Figure,
    top: float,
    text: str,
    *,
    size: float = TEXT,
    weight: str = "normal",
    color: str = DARK,
) -> None:
    """Write ``text`` at the left edge, ``top`` inches below the upper edge."""
    tall = figure.get_figheight()
    figure.text(EDGE / WIDTH, 1 - top / tall, text, size=size, va="top", weight=weight, color=color)


def new_figure(height: float) -> Figure:
    """An empty picture of ``height`` inches, with no window behind it."""
    figure = Figure(figsize=(WIDTH, height))
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, folder: Path, name: str, title: str) -> None:
    """Write ``name.png`` (2,000 px wide) and ``name.svg`` into ``folder``."""
    figure.savefig(folder / f"{name}.png", metadata={"Title": title, "Software": None})
    figure.savefig(folder / f"{name}.svg", metadata={"Title": title, "Date": None, "Creator": None})


def _broken(word: str, inches: float, size: float, weight: str) -> list[str]:
    """``word`` in pieces that fit; scripts without spaces come as one long word."""
    pieces = []
    while len(word) > 1 and text_width(word, size, weight) > inches:
        fits = bisect.bisect_right(
            range(1, len(word)), inches, key=lambda end: text_width(word[:end], size, weight)
        )
        # Better after a sign inside the word, unless that leaves the line half empty.
        signs = [match.end() for match in re.finditer(r"[_/.=:,-]", word[:fits])]
        cut = signs[-1] if signs and 2 * signs[-1] > fits else max(fits, 1)
        pieces.append(word[:cut])
        word = word[cut:]
    return [*pieces, word]


@functools.cache
def _families() -> tuple[str, ...]:
    installed = set(font_manager.get_font_names())
    others = (name for name in _FALLBACK_FONTS if name in installed)
    # The last one is for readers of an SVG who have none of the others.
    return ("DejaVu Sans", *others, "sans-serif")
