"""The course of a run: its turns in the order in which they ended, and how warm the GPU was."""

import dataclasses

import pandas as pd

TEMPERATURE_BAND = (65.0, 75.0)
"""Degrees Celsius in which the article wants a GPU to stay while it trains."""

LONGEST_WAIT_SECONDS = 600.0
"""Between two turns; beyond it a run was stopped and resumed, and its course leaves the rest out.
No answer of an arm is waited for so long."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Temperatures:
    """The GPU's temperatures at the ends of turns, in degrees Celsius, beside the band."""

    lowest: float
    highest: float
    below: int
    inside: int
    above: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Course:
    """``turns``: the rows of the timed turns in their order, with one more column, ``place``.

    ``place`` is the minutes since the first turn ended; where not every turn has a date
    (``has_dates`` is false), the turn's number from 1. ``pauses``: the places at which the run
    was stopped for longer than LONGEST_WAIT_SECONDS, which the minutes leave out.
    """

    turns: pd.DataFrame
    has_dates: bool
    pauses: tuple[float, ...] = ()

    @property
    def temperatures(self) -> Temperatures | None:
        """What the GPU's temperatures were in turns that used it; None where none was read."""
        on_gpu = self.turns["peak_gpu_allocated_bytes"].notna()
        known = self.turns.loc[on_gpu, "gpu_temperature_celsius"].dropna()
        if known.empty:
            return None
        low, high = TEMPERATURE_BAND
        return Temperatures(
            lowest=float(known.min()),
            highest=float(known.max()),
            below=int((known < low).sum()),
            inside=int(known.between(low, high).sum()),
            above=int((known > high).sum()),
        )


def course(measurements: pd.DataFrame) -> Course:
    """The course of the run that left these measurements."""
    turns = measurements[measurements["block"].notna()].reset_index(drop=True)
    ended = pd.to_datetime(turns["ended_at"], utc=True, format="ISO8601", errors="coerce")
    if ended.isna().any():
        return Course(turns=turns.assign(place=range(1, len(turns) + 1)), has_dates=False)
    # The system's clock may be set back meanwhile; turns never go back.
    waits = ended.diff().dt.total_seconds().fillna(0.0).clip(lower=0.0)
    is_pause = waits > LONGEST_WAIT_SECONDS
    places = waits.mask(is_pause, 0.0).cumsum() / 60
    return Course(turns=turns.assign(place=places), has_dates=True, pauses=tuple(places[is_pause]))
