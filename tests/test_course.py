"""The course of a run: its axis, its pauses, what it says of the GPU's temperature."""

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from matplotlib.figure import Figure
from synthetic import as_read, make_environment, make_plan, make_turns

from bench.analysis.course import Course, course
from bench.analysis.effects import effects
from bench.records.measurements import Turn
from bench.reporting import drawing, model
from bench.reporting.course_picture import course_picture
from bench.reporting.markdown import markdown

START = datetime(2026, 1, 31, 23, 59, 58, 500_000, tzinfo=UTC)


def ended(seconds: Sequence[float]) -> list[Turn]:
    """As many turns, ended so many seconds after START."""
    turns = make_turns(make_plan())
    return [
        dataclasses.replace(
            turn, ended_at=(START + timedelta(seconds=second)).isoformat(timespec="milliseconds")
        )
        for turn, second in zip(turns, seconds, strict=False)
    ]


def places(found: Course) -> list[float]:
    return [float(place) for place in found.turns["place"]]


def report_of(turns: Sequence[Turn]) -> model.Report:
    plan, environment, measured = make_plan(), make_environment(), as_read(list(turns))
    return model.build(plan, environment, measured, effects(measured, plan, environment))


def picture(turns: Sequence[Turn]) -> Figure:
    with drawing.style():
        return course_picture(report_of(turns))


def test_the_axis_is_minutes_since_the_first_turn() -> None:
    found = course(as_read(ended([0, 1.5, 90])))
    assert found.has_dates
    assert places(found) == pytest.approx([0, 0.025, 1.5])
    assert found.pauses == ()


def test_a_run_that_was_stopped_and_resumed_has_a_pause_and_no_gap() -> None:
    found = course(as_read(ended([0, 60, 60 + 86_400, 120 + 86_400])))
    assert places(found) == pytest.approx([0, 1, 1, 2])
    assert found.pauses == pytest.approx((1,))
    figure = picture(ended([0, 60, 60 + 86_400, 120 + 86_400]))
    assert "resumed later" in figure.axes[-1].get_xlabel()
    assert any(line.get_linestyle() == "--" for line in figure.axes[0].lines)


def test_a_clock_that_is_set_back_turns_no_time_back() -> None:
    assert places(course(as_read(ended([0, 60, -3_540, -3_480])))) == pytest.approx([0, 1, 1, 2])


@pytest.mark.parametrize("dates", ["none", "some", "broken"])
def test_without_a_date_for_each_turn_the_axis_counts_turns_and_says_so(dates: str) -> None:
    turns = ended(range(6))
    if dates == "none":
        turns = [dataclasses.replace(turn, ended_at=None) for turn in turns]
    else:
        date = None if dates == "some" else "yesterday"
        turns[3] = dataclasses.replace(turns[3], ended_at=date)
    found = course(as_read(turns))
    assert not found.has_dates
    assert places(found) == [1, 2, 3, 4, 5, 6]
    assert "no dates" in picture(turns).axes[-1].get_xlabel()


def test_a_reading_without_data_is_said_and_a_gap_is_no_zero() -> None:
    turns = [
        dataclasses.replace(turn, gpu_power_watts=None if number == 1 else 300.0 + number)
        for number, turn in enumerate(ended(range(4)))
    ]
    *_, clock, _, power = picture(turns).axes
    assert [text.get_text() for text in clock.texts] == ["no data"]
    assert not clock.lines
    drawn = max(power.lines, key=lambda line: np.size(line.get_xdata()))
    assert np.asarray(drawn.get_ydata()).tolist() == [300, 302, 303]
    assert [text.get_text() for text in power.texts] == ["3 turns"]


def test_a_flagged_turn_has_a_mark_for_each_of_its_flags() -> None:
    turns = ended(range(5))
    turns[1] = dataclasses.replace(turns[1], flags="the GPU was throttled; others used the CPU")
    turns[4] = dataclasses.replace(turns[4], flags="others used the CPU")
    flagged = picture(turns).axes[1]
    marks = {
        label.get_text(): np.asarray(line.get_xdata()).tolist()
        for label, line in zip(flagged.texts[::2], flagged.lines, strict=True)
    }
    assert marks == {
        "the GPU was throttled": pytest.approx([1 / 60]),
        "others used the CPU": pytest.approx([1 / 60, 4 / 60]),
    }


@pytest.mark.parametrize(
    ("temperatures", "told"),
    [
        ([70, 75, 65], "The GPU stayed in the 65 to 75 °C that the article names: it had 65 to 75"),
        ([40, 70, 80], "did not stay in"),
        ([40, 70, 80], "1 below it, 1 inside and 1 above"),
        ([None, None, None], ""),
    ],
)
def test_the_report_says_whether_the_gpu_stayed_in_the_articles_band(
    temperatures: list[float | None], told: str
) -> None:
    turns = [
        dataclasses.replace(
            turn, gpu_temperature_celsius=temperature, peak_gpu_allocated_bytes=1 << 20
        )
        for turn, temperature in zip(ended(range(3)), temperatures, strict=True)
    ]
    report = report_of(turns)
    assert told in " ".join(report.course_sentences)
    assert ("°C" in " ".join(report.course_sentences)) == bool(told)
    assert "figures/course.png" in markdown(report)
    assert "None of the 3 turns was flagged." in markdown(report)
