"""A run's folder gets a report and pictures, whatever happened and whatever its texts hold."""

import dataclasses
import io
import itertools
import re
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from PIL import Image
from rich.console import Console
from synthetic import (
    ACCURACY,
    BYTES_A_BYTE,
    RATE,
    as_read,
    make_environment,
    make_plan,
    make_tip,
    make_turns,
    no_measurements,
)

from bench import reporting
from bench.analysis.effects import effects
from bench.errors import UserError
from bench.records.effects import Effect
from bench.records.measurements import MeasurementWriter, Turn
from bench.records.plan import Metric, Plan, write_plan
from bench.records.run_folder import RunFolder
from bench.reporting import drawing, model
from bench.reporting.course_picture import course_picture
from bench.reporting.html import BAND, html, skipped, strip
from bench.reporting.markdown import code, markdown, text
from bench.reporting.method import method
from bench.reporting.overview_picture import overview_picture
from bench.reporting.screen import verdict_table
from bench.reporting.sentences import Conclusion, conclusion, summary
from bench.reporting.tip_picture import tip_picture
from bench.reporting.units import effect_text, number, price_text, quantity
from bench.tips.tip import HOST_MEMORY

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
NASTY = "<script>alert(1)</script> $\\foo$ 解码器 | `x` *y* " + "z" * 200


def report_of(plan: Plan, measurements: pd.DataFrame) -> model.Report:
    rows = effects(measurements, plan, make_environment())
    return model.build(plan, make_environment(), measurements, rows)


def nasty_plan() -> Plan:
    numbers = [f"num_workers={cores}" for cores in (0, 1, 2, 4, 8, 16, 32)]
    return make_plan(
        make_tip(
            "num_workers",
            *numbers,
            metrics=(RATE, HOST_MEMORY),
            workloads=("loader", NASTY),
            reasons={numbers[-1]: NASTY},
        ),
        make_tip("streaming", "all in memory", "files", metrics=(BYTES_A_BYTE, RATE)),
        make_tip("decoder", "None", "解码器" * 20, NASTY, "$\\foo$", reasons={NASTY: NASTY}),
        make_tip("absent", "False", "True", reasons={"False": NASTY, "True": NASTY}),
        make_tip("soft_labels", metrics=(ACCURACY,), section="Compression and deployment"),
        make_tip("monitoring", section="Environment", is_price=True),
        make_tip("aa", "first", "second", section="A/A"),
        other_replicates=3,
        images={"name": NASTY, "count": 3, "total_bytes": 9, "left_out": {"CMYK": [NASTY, "b"]}},
    )


def nasty_turns(plan: Plan, *, noise: float = 0.0) -> list[Turn]:
    turns = make_turns(
        plan, lambda tip, *_: 30.0 if tip == "decoder" else 0.97, replicate_noise=noise
    )
    turns[-1] = dataclasses.replace(turns[-1], flags=NASTY, evidence={NASTY: [NASTY, 0.1]})
    turns.append(
        dataclasses.replace(turns[0], variant="num_workers=8", status="failed", reason=NASTY)
    )
    return turns


class TestWrite:
    def test_writes_both_reports_and_two_pictures_a_tip(self, tmp_path: Path) -> None:
        plan = make_plan(
            make_tip("num_workers", "0", "1", "2"),
            make_tip("pin_memory", reasons={"off": "needs CUDA", "on": "needs CUDA"}),
        )
        measured = as_read(make_turns(plan, lambda *_: 1.5))
        rows = effects(measured, plan, make_environment())
        reporting.write(tmp_path, plan, make_environment(), measured, rows)
        names = [
            f"{name}.{kind}"
            for name in ("num_workers", "overview", "pin_memory", "course")
            for kind in ("png", "svg")
        ]
        assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == sorted(names)
        left = ["figures", "report.html", "report.md"]
        assert sorted(path.name for path in tmp_path.iterdir()) == left
        for name in names:
            path = tmp_path / "figures" / name
            if path.suffix == ".png":
                with Image.open(path) as picture:
                    assert picture.width == 2000
            assert f"figures/{path.stem}.png" in (tmp_path / "report.md").read_text("utf-8")

    def test_pictures_of_one_run_are_the_same_each_time(self, tmp_path: Path) -> None:
        plan = make_plan()
        measured = as_read(make_turns(plan, lambda *_: 1.5, replicate_noise=0.02))
        rows = effects(measured, plan, make_environment())
        for folder in ("a", "b"):
            (tmp_path / folder).mkdir()
            reporting.write(tmp_path / folder, plan, make_environment(), measured, rows)
        for path in (tmp_path / "a" / "figures").iterdir():
            assert path.read_bytes() == (tmp_path / "b" / "figures" / path.name).read_bytes()

    def test_no_measurements_still_give_a_full_report(self, tmp_path: Path) -> None:
        plan = nasty_plan()
        rows = effects(no_measurements(), plan, make_environment())
        reporting.write(tmp_path, plan, make_environment(), no_measurements(), rows)
        told = (tmp_path / "report.md").read_text("utf-8")
        for tip in plan.tips:
            assert f"### `{tip.id}`" in told
            assert (tmp_path / "figures" / f"{tip.id}.svg").exists()
        assert "no replicate was finished" in told
        assert "no data" in told

    def test_svg_holds_the_texts_as_they_are(self, tmp_path: Path) -> None:
        plan = make_plan(
            make_tip("t", "解码器", "$\\foo$", "<b>", reasons={"<b>": "因为 <script>"})
        )
        measured = as_read(make_turns(plan))
        rows = effects(measured, plan, make_environment())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            reporting.write(tmp_path, plan, make_environment(), measured, rows)
        tree = ElementTree.parse(tmp_path / "figures" / "t.svg")
        told = {element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")}
        assert {"解码器", "$\\foo$", "<b>", "not measurable here: 因为 <script>"} <= told


class TestPictures:
    """No text is cut and none lies over another, whatever the texts."""

    @staticmethod
    def texts(figure: Figure) -> Iterator[tuple[str, Bbox]]:
        figure.draw_without_rendering()
        hidden = set()
        for axes in figure.axes:
            for axis, (low, high), side in (
                (axes.xaxis, axes.get_xlim(), 0),
                (axes.yaxis, axes.get_ylim(), 1),
            ):
                for label in axis.get_ticklabels():
                    if not min(low, high) <= label.get_position()[side] <= max(low, high):
                        hidden.add(label)
        for artist in figure.findobj(Text):
            assert isinstance(artist, Text)
            if artist.get_visible() and artist.get_text() and artist not in hidden:
                yield artist.get_text(), artist.get_window_extent()

    def check(self, figure: Figure) -> None:
        found = list(self.texts(figure))
        width, height = figure.bbox.width, figure.bbox.height
        for told, box in found:
            assert box.x0 >= 0, told
            assert box.y0 >= 0, told
            assert box.x1 <= width, told
            assert box.y1 <= height, told
        for (one, box), (other, its) in itertools.combinations(found, 2):
            # A pixel of two lines' ascenders and descenders may touch.
            is_over = min(box.x1, its.x1) - max(box.x0, its.x0) > 1 and (
                min(box.y1, its.y1) - max(box.y0, its.y0) > 2
            )
            assert not is_over, (one, other)

    @pytest.mark.parametrize("replicates", [0, 1, 2, 5])
    def test_texts_are_whole_and_apart(self, replicates: int) -> None:
        plan = nasty_plan()
        turns = [
            turn
            for turn in nasty_turns(plan, noise=0.05)
            if turn.status == "ok" and (turn.replicate or 0) < replicates
        ]
        report = report_of(plan, as_read(turns) if turns else no_measurements())
        self.check_all(report)

    def check_all(self, report: model.Report) -> None:
        with drawing.style():
            self.check(overview_picture(report))
            self.check(course_picture(report))
            for tip in report.tips:
                if not tip.tip.is_check:
                    self.check(tip_picture(tip, report))

    @pytest.mark.parametrize("replicates", [1, 5])
    def test_texts_are_apart_at_the_extremes(self, replicates: int) -> None:
        """Twelve variants, huge and tiny effects, values below zero, long names everywhere."""
        many = [f"variant number {number} of twelve" for number in range(12)]
        plan = make_plan(
            make_tip("w" * 200, *many, metrics=(RATE, HOST_MEMORY)),
            make_tip("huge", "a", "b", "c"),
            make_tip("tiny", "n=1", "n=2", "n=30000000"),
            make_tip("equal", "a", "b", metrics=(ACCURACY,)),
            make_tip("below_zero", "a", "b", metrics=(BYTES_A_BYTE, RATE)),
            make_tip("none", *many, reasons=dict.fromkeys(many, NASTY)),
            make_tip("aa", "first", "second", section="A/A"),
        )
        effects_of = {"huge": 40.0, "tiny": 0.002, "equal": 0.0, "below_zero": -30.0}
        turns = make_turns(
            plan,
            lambda tip, *_: effects_of.get(tip, 1.0),
            replicates=replicates,
            replicate_noise=1.5,
        )
        turns = [
            dataclasses.replace(
                turn,
                ended_at=(START + timedelta(seconds=number)).isoformat(),
                foreign_cpu_percent=number % 300,
                gpu_temperature_celsius=-40.0 + number % 3,
                gpu_sm_clock_mhz=1_980,
                gpu_power_watts=1e3 * (number % 2),
                flags=NASTY if number % 5 else "the GPU was throttled; other processes",
            )
            for number, turn in enumerate(turns)
        ]
        environment = make_environment() | {"machine_name": "machine-" * 30, "cpu_model": NASTY}
        measured = as_read(turns)
        rows = effects(measured, plan, environment)
        self.check_all(model.build(plan, environment, measured, rows))

    def test_a_run_of_checks_alone_has_pictures(self) -> None:
        check = make_tip("environment", NASTY, "b", workloads=(), section="Environment")
        report = report_of(make_plan(check), no_measurements())
        self.check_all(report)
        with drawing.style():
            told = [told for told, _ in self.texts(course_picture(report))]
        assert {"no turn was measured", "no turn was flagged", "no data"} <= set(told)

    def test_an_interval_that_is_cut_says_so(self) -> None:
        plan = make_plan(make_tip("t", "a", "b"))
        report = report_of(plan, as_read(make_turns(plan, replicates=2, replicate_noise=1.0)))
        with drawing.style():
            (axes,) = tip_picture(report.tips[0], report).axes
        assert ">" in {line.get_marker() for line in axes.lines}
        assert max(np.max(line.get_xdata()) for line in axes.lines) <= axes.get_xlim()[1]

    def test_the_margin_is_drawn_around_the_baseline_of_a_variants_own_replicates(self) -> None:
        plan = make_plan(make_tip("t", "a", "b", "c"), other_replicates=3)
        turns = [
            # The baseline is twice as fast in the replicates that c does not have.
            dataclasses.replace(
                turn, seconds=(turn.seconds or 0) / (1 + (turn.replicate or 0) // 3)
            )
            for turn in make_turns(plan)
            if turn.variant != "c" or (turn.replicate or 0) < 3
        ]
        report = report_of(plan, as_read(turns))
        baseline, _, fewer = report.tips[0].rows
        assert fewer.effect == pytest.approx(1)
        with drawing.style():
            (axes,) = tip_picture(report.tips[0], report).axes
        (band,) = axes.collections
        (path,) = band.get_paths()
        ends = np.asarray(path.vertices)[:, 0]
        assert baseline.value is not None
        for base in (500.0, baseline.value):
            for edge in (base / 1.03, base * 1.03):
                assert np.isclose(ends, edge).any()

    def test_what_has_no_data_is_said_and_never_drawn_as_zero(self) -> None:
        plan = make_plan(
            make_tip("t", "n=0", "n=1", "n=2", "n=4", reasons={"n=4": "no cores"}),
            make_tip("named", "a", "b", reasons={"b": "needs CUDA"}),
        )
        report = report_of(plan, as_read(make_turns(plan)))
        with drawing.style():
            curve = tip_picture(report.tips[0], report)
            bars = tip_picture(report.tips[1], report)
            told = [told for told, _ in self.texts(curve)]
        (axes,) = curve.axes
        line = max(axes.lines, key=lambda line: np.size(line.get_xdata()))
        assert np.isnan(np.asarray(line.get_ydata(), float)).tolist() == [False, False, False, True]
        assert "4\nno data" in told
        assert any("n=4: not measurable here: no cores" in part for part in told)
        (axes,) = bars.axes
        assert len(axes.patches) == 1  # one bar
        assert any("not measurable here: needs CUDA" in told for told, _ in self.texts(bars))

    def test_overview_tells_every_tip_and_keeps_differences_apart(self) -> None:
        plan = nasty_plan()
        report = report_of(plan, as_read(nasty_turns(plan)))
        with drawing.style():
            figure = overview_picture(report)
        ratios, differences = figure.axes
        told = [[text.get_text() for text in axes.texts] for axes in (ratios, differences)]
        assert any("monitoring (on)" in part for part in told[0])
        assert any("costs 3" in part for part in told[0])
        assert any("soft_labels" in part for part in told[1])
        assert any("+0.97 points" in part for part in told[1])


class TestMarkdown:
    def test_texts_are_shown_as_they_are(self) -> None:
        plan = nasty_plan()
        told = markdown(report_of(plan, as_read(nasty_turns(plan))))
        outside_code = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", told)
        assert "<script>" not in outside_code
        assert "$\\foo" not in outside_code
        assert "解码器" in told

    def test_every_table_row_has_as_many_cells_as_its_head(self) -> None:
        plan = nasty_plan()
        told = markdown(report_of(plan, as_read(nasty_turns(plan))))
        for block in told.split("\n\n"):
            if block.startswith("|"):
                counts = {line.replace("\\|", "").count("|") for line in block.split("\n")}
                assert len(counts) == 1, block

    @pytest.mark.parametrize(
        ("plain", "escaped"),
        [
            ("a|b", "a\\|b"),
            ("a\nb", "a b"),
            ("<b> & $x$", "&lt;b&gt; &amp; <span>$</span>x<span>$</span>"),
            ("snake_case stays, _this_ not", "snake_case stays, \\_this\\_ not"),
            ("[1.48, 1.56]", "\\[1.48, 1.56\\]"),
        ],
    )
    def test_escapes(self, plain: str, escaped: str) -> None:
        assert text(plain) == escaped

    @pytest.mark.parametrize(
        ("plain", "fenced"), [("a|b", "`a\\|b`"), ("a`b", "``a`b``"), ("`", "`` ` ``"), ("", "` `")]
    )
    def test_code(self, plain: str, fenced: str) -> None:
        assert code(plain) == fenced

    def test_names_what_was_left_out_flagged_and_seen(self) -> None:
        plan = make_plan(images={"left_out": {"CMYK": ["a.jpg"], "truncated": ["b.jpg", "c.jpg"]}})
        turns = make_turns(plan, lambda *_: 1.5)
        turns[0] = dataclasses.replace(turns[0], flags="throttled")
        turns[-1] = dataclasses.replace(turns[-1], evidence={"ids": [0, 1]})
        told = markdown(report_of(plan, as_read(turns)))
        assert "| CMYK | 1 | `a.jpg` |" in told
        assert "| truncated | 2 | `b.jpg`, `c.jpg` |" in told
        assert "| `num_workers` | throttled | 1 |" in told
        assert "ids: `0, 1`" in told

    def test_command_repeats_the_run(self) -> None:
        options = {
            "budget_seconds": 480.0,
            "own_images": True,
            "own_model": True,
            "storage_places": 2,
            "nnodes": 3,
        }
        assert model.command(make_plan(make_tip("a"), make_tip("b"), options=options)) == (
            "python -m bench run --profile quick --tips a,b --seed 1 --margin 0.03 "
            "--budget 480s --data DIR --storage PATH --storage PATH --model small_cnn "
            "--image-size 224 --batch-size 16 --device cpu --nnodes 3 --rdzv-endpoint HOST:PORT"
        )
        told = model.command(make_plan())
        assert not {"--data", "--model", "--nnodes"} & set(told.split())


class TestSentences:
    def report(self, plan: Plan, planted: dict[str, float], noise: float = 0.0) -> model.Report:
        turns = make_turns(plan, lambda tip, *_: planted.get(tip, 1.0), replicate_noise=noise)
        return report_of(plan, as_read(turns))

    def test_what_helped_what_did_not_how_sure(self) -> None:
        plan = make_plan(
            *(make_tip(name, "a", "b") for name in ("fast", "faster", "fastest", "least")),
            make_tip("points", "a", "b", metrics=(ACCURACY,)),
            make_tip("slow", "a", "b"),
            make_tip("slower", "a", "b"),
            make_tip("same", "a", "b"),
            make_tip("gpu", "a", "b", reasons={"a": "needs CUDA", "b": "needs CUDA"}),
            make_tip("watching", "a", "b", is_price=True),
            dataclasses.replace(make_tip("kept", "a", "b"), is_followed=True),
            make_tip("aa", "a", "b", section="A/A"),
        )
        planted = {
            "kept": 4.0,
            "fast": 1.5,
            "faster": 2.0,
            "fastest": 3.0,
            "least": 1.2,
            "points": 2.0,
            "slow": 0.5,
            "slower": 0.25,
            "watching": 0.9,
        }
        helped, rest, sure = summary(self.report(plan, planted))
        assert helped == (
            "What helped most is fastest at 3.00×, then faster at 2.00× and fast at 1.50×, and "
            "2 more helped."
        )
        assert rest == (
            "Of the rest, kept (4.00×) is followed here without your doing; slower (0.25×) and "
            "slow (0.50×) made things worse; watching costs 10.0 % of the speed; same made no "
            "difference; 1 cannot be measured on this machine."
        )
        assert sure.startswith(
            "How sure: each 95 % interval, over 5 replicates and beside a margin of ±3 %, misses "
            "its true effect about one time in twenty by chance; the same thing measured twice "
            "read 1.00"
        )
        assert sure.endswith("], as it should.")

    def test_a_gain_of_unclear_size_and_noise_are_told_as_such(self) -> None:
        plan = make_plan(make_tip("some"), make_tip("noisy"), make_tip("aa", section="A/A"))
        turns = make_turns(plan, lambda tip, *_: 1.04 if tip == "some" else 1.0)
        turns = [
            dataclasses.replace(
                turn,
                seconds=(turn.seconds or 0)
                * (1.2 if turn.tip != "some" else 1.008) ** ((-1) ** (turn.replicate or 0)),
            )
            if not turn.is_baseline
            else turn
            for turn in turns
        ]
        report = report_of(plan, as_read(turns))
        helped, rest, sure = summary(report)
        assert helped == "some helped, perhaps too little to matter."
        assert rest == "Of the rest, 1 stayed inconclusive."
        within = r"so an effect between (0\.\d\d)× and (1\.\d\d)× means little here"
        assert (ends := re.search(f"{within}\\.$", sure))
        assert float(ends[1]) * float(ends[2]) == pytest.approx(1, abs=0.02)
        some, noisy, aa = (conclusion(tip, report) for tip in report.tips)
        assert some.short == "It helps here, perhaps too little to matter"
        assert noisy.short == "Too noisy to say"
        assert "replicates would probably settle it, 5 measured." in noisy.why
        assert aa.short == "Nothing to follow: this is the same thing twice"
        assert re.search(within, aa.why)

    def test_smoke_claims_nothing(self) -> None:
        plan = make_plan(profile="smoke", claims_verdicts=False)
        report = self.report(plan, {"num_workers": 2.0})
        helped, rest, _ = summary(report)
        assert "claims nothing" in helped
        assert rest == "1 tip ran."
        found = conclusion(report.tips[0], report)
        assert found.short == "No verdict: a smoke run shows only that it runs"
        assert found.why.startswith("“on” against “off”: 2.00")
        assert found.why.endswith("which proves nothing.")

    @pytest.mark.parametrize(
        ("effect", "is_price", "short"),
        [
            (1.5, False, "Follow it here"),
            (0.5, False, "Don't follow it here"),
            (1.0, False, "It makes no difference here"),
            (0.8, True, "It costs 20.0 % of the speed here"),
            (1.0, True, "It costs nothing here that matters"),
            (1.2, True, "No cost was seen here"),
        ],
    )
    def test_whether_to_follow_a_tip(self, effect: float, is_price: bool, short: str) -> None:
        plan = make_plan(make_tip(is_price=is_price))
        report = self.report(plan, {"num_workers": effect})
        found = conclusion(report.tips[0], report)
        assert found.short == short
        assert "interval lies" in found.why
        assert "±3 %" in found.why
        assert ("noise" in found.why) == (is_price and effect > 1)

    def test_why_there_is_no_answer(self) -> None:
        plan = make_plan(
            make_tip("gpu", reasons={"off": "needs CUDA", "on": "needs CUDA"}),
            make_tip("broken"),
            make_tip("stopped"),
            make_tip("early"),
        )
        turns = [
            turn
            for turn in make_turns(plan)
            if turn.tip == "broken" or (turn.tip == "early" and (turn.replicate or 0) < 2)
        ]
        turns.append(
            dataclasses.replace(turns[1], variant="on", status="failed", reason="it crashed")
        )
        report = report_of(plan, as_read(turns))
        told = {tip.tip.id: conclusion(tip, report) for tip in report.tips}
        assert told["gpu"] == Conclusion(short="Not measured here", why="Needs CUDA.")
        assert told["broken"].short == "It failed here, so there is no number"
        assert told["broken"].why == "It crashed."
        assert told["stopped"].short == "No answer from this run"
        assert told["early"].short == "Too few replicates to say"
        assert "2 of 5 replicates measured" in told["early"].why

    def test_a_better_variant_is_named_and_decides_nothing(self) -> None:
        plan = make_plan(make_tip("t", "t=0", "t=1", "t=2", "t=4"), other_replicates=3)
        planted = {"t=1": 0.8, "t=2": 1.5, "t=4": 1.4}
        turns = make_turns(plan, lambda _tip, _work, variant, _metric: planted[variant])
        report = report_of(plan, as_read(turns))
        found = conclusion(report.tips[0], report)
        assert found.short == "Don't follow it here"
        assert "“t=2”, the best of 2 other variants, read 1.50" in found.why
        assert found.why.endswith("which decides nothing.")

    def test_a_run_without_the_recommended_variant_says_so(self) -> None:
        tip = make_tip("t", "a", "b", "c")
        kept = tuple(variant for variant in tip.variants if not variant.is_recommended)
        plan = make_plan(dataclasses.replace(tip, variants=kept))
        report = report_of(plan, as_read(make_turns(plan, lambda *_: 1.5)))
        assert conclusion(report.tips[0], report).short == "Not measured in this run"
        assert "Not measured in this run" in markdown(report)
        with drawing.style():
            overview_picture(report)


class TestHtml:
    def page(self, tmp_path: Path, report: model.Report) -> str:
        for name in ("overview", "course", *(tip.picture for tip in report.tips)):
            (tmp_path / f"{name}.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
        return html(report, tmp_path)

    def test_every_tip_has_its_card_with_the_card_s_text(self, tmp_path: Path) -> None:
        card = "Why <b>so</b>.\n\n```python\nx = 1 < 2\n```\n\n![p](https://example.com/p.png)"
        plan = make_plan(dataclasses.replace(make_tip("one"), card=card), make_tip("two"))
        told = self.page(tmp_path, report_of(plan, as_read(make_turns(plan, lambda *_: 1.5))))
        assert re.findall(r'<article id="tip-(\w+)"', told) == ["one", "two"]
        assert "Why &lt;b&gt;so&lt;/b&gt;." in told
        assert "x = 1 &lt; 2" in told
        assert told.count("<img") == 4
        assert 'https://example.com/p.png"><' not in told.replace("<a href", "")

    def test_what_was_not_measured_is_told_once_with_its_reason(self, tmp_path: Path) -> None:
        reasons = {"b": "needs CUDA", "c": "needs CUDA"}
        plan = make_plan(make_tip("t", "a", "b", "c", workloads=("x", "y"), reasons=reasons))
        report = report_of(plan, as_read(make_turns(plan)))
        assert list(skipped(report.tips[0])) == [("not measurable here", "needs CUDA", ["b", "c"])]

    @pytest.mark.parametrize(
        ("ends", "places"),
        [
            ((1.0, 1 / 1.03, 1.03), (50, 50 - BAND, 50 + BAND)),
            ((2.0, None, None), (81.8, None, None)),
            ((1e9, 0.5, 1e12), (96, 18.2, 96)),
        ],
    )
    def test_a_strip_puts_effects_beside_the_margin(
        self, ends: tuple[float, float | None, float | None], places: tuple[float | None, ...]
    ) -> None:
        plan = make_plan()
        (_, row) = effects(no_measurements(), plan, make_environment())
        effect, low, high = ends
        drawn = strip(dataclasses.replace(row, effect=effect, ci_low=low, ci_high=high))
        assert drawn
        assert [drawn.point, drawn.low, drawn.high] == [
            None if place is None else pytest.approx(place, abs=0.5) for place in places
        ]
        assert drawn.is_high_cut == (high == 1e12)
        assert not drawn.is_low_cut

    def test_no_effect_has_no_strip(self) -> None:
        plan = make_plan()
        (_, row) = effects(no_measurements(), plan, make_environment())
        assert strip(row) is None


class TestUnits:
    @pytest.mark.parametrize(
        ("value", "unit", "told"),
        [
            (None, "images/s", "no data"),
            (1523.4, "images/s", "1,520 images/s"),
            (0.01234, "s", "12.3 ms"),
            (45e-6, "s", "45.0 µs"),
            (2.5, "s", "2.50 s"),
            (172 * 2**20, "bytes", "172 MiB"),
            (3 * 2**30, "bytes", "3.00 GiB"),
            (0, "bytes", "0 bytes"),
            (54.1e6, "bytes/s", "54.1 MB/s"),
            (-2 * 2**20, "bytes", "−2.00 MiB"),
        ],
    )
    def test_quantity(self, value: float | None, unit: str, told: str) -> None:
        assert quantity(value, unit) == told

    def test_number_rounds_to_three_digits(self) -> None:
        assert [number(value) for value in (999.6, 0.09999, 1, 0)] == [
            "1,000",
            "0.1000",
            "1.00",
            "0",
        ]

    def effect(self, **changes: object) -> Effect:
        plan = make_plan()
        (_, row) = effects(no_measurements(), plan, make_environment())
        return dataclasses.replace(row, **changes)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("values", "told"),
        [
            ((1.52, 1.48, 1.56), "1.52× [1.48, 1.56]"),
            ((1.5204, 1.5201, 1.5208), "1.520× [1.520, 1.521]"),
            ((33.3, 13.2, 84.0), "33× [13, 84]"),
            ((0.28, 0.002, 40.0), "0.3× [0.002, 40]"),
            ((2.0, None, None), "2.00×"),
            ((None, None, None), ""),
        ],
    )
    def test_ratio(self, values: Sequence[float | None], told: str) -> None:
        effect, low, high = values
        assert effect_text(self.effect(effect=effect, ci_low=low, ci_high=high)) == told

    def test_difference(self) -> None:
        row = self.effect(
            effect=-1.2, ci_low=-2.0, ci_high=0.4, effect_kind="difference", unit="points"
        )
        assert effect_text(row) == "−1.2 points [−2.0, 0.4]"

    @pytest.mark.parametrize(
        ("values", "told"),
        [
            ((0.96, 0.95, 0.97), "costs 4 % [3, 5]"),
            ((0.985, 0.98, 0.99), "costs 1.5 % [1.0, 2.0]"),
            ((1.02, 1.01, 1.03), "gains 2 % [1, 3]"),
            ((0.99, 0.97, 1.01), "costs 1 % [−1, 3]"),
        ],
    )
    def test_price(self, values: tuple[float, float, float], told: str) -> None:
        effect, low, high = values
        assert price_text(self.effect(effect=effect, ci_low=low, ci_high=high)) == told


def test_screen_fits_100_columns_and_gives_each_reason_once() -> None:
    plan = nasty_plan()
    rows = effects(as_read(nasty_turns(plan)), plan, make_environment())
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(verdict_table(rows, plan))
    told = console.export_text()
    assert max(len(line) for line in told.split("\n")) <= 100
    assert "[1.48" not in told
    assert told.count("<script>alert(1)</script> $\\foo$ 解码器 | `x` *y*") >= 1
    assert "costs" in told


@pytest.mark.parametrize("taken", ["figures", "report.html"])
def test_a_report_that_cannot_be_written_is_said_so(tmp_path: Path, taken: str) -> None:
    folder = RunFolder(tmp_path)
    write_plan(folder.plan, make_plan(make_tip()))
    folder.write_environment(make_environment())
    if taken == "figures":
        (tmp_path / taken).write_text("a file, not a folder")
    else:
        (tmp_path / taken).mkdir()
    with pytest.raises(UserError, match=f"cannot be written: .*{taken}"):
        reporting.conclude(folder)


def test_a_report_is_written_where_nothing_that_measures_is_installed(tmp_path: Path) -> None:
    plan = make_plan(make_tip(), make_tip("gpu", reasons={"off": "no CUDA", "on": "no CUDA"}))
    folder = RunFolder(tmp_path)
    write_plan(folder.plan, plan)
    folder.write_environment(make_environment())
    writer = MeasurementWriter(folder.measurements)
    for turn in make_turns(plan, lambda *_: 1.5):
        writer.append(turn)
    writer.close()
    program = """
import sys
class Missing:
    names = set("torch torchvision torchcodec turbojpeg jpeg4py simplejpeg cv2 onnx".split())
    names |= set("onnxruntime pynvml pytest skimage sklearn".split())
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from bench.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "report", str(tmp_path)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "report.html" in done.stdout
    for path in (folder.report, folder.markdown, folder.effects):
        assert path.stat().st_size > 1000


def test_the_method_names_the_workloads_of_another_pace() -> None:
    tip = make_tip("jpeg_decoder")
    paced = dataclasses.replace(tip.workloads[0], blocks=24, turn_seconds=0.025)
    plan = make_plan(dataclasses.replace(tip, workloads=(paced,)), make_tip())
    told = method(report_of(plan, no_measurements()))[0]
    assert "in turns of about 150 ms, 4 blocks a replicate (jpeg_decoder 24 of 25.0 ms)" in told


def test_what_is_spent_once_pays_off_after_so_many_epochs() -> None:
    build = Metric(
        name="build_seconds", unit="s", column="build_seconds", aggregate="once",
        higher_is_better=False, is_outlay=True,
    )  # fmt: skip
    plan = make_plan(
        make_tip("ahead", "before", "copy", metrics=(RATE, build)), images={"count": 1000}
    )
    turns = make_turns(plan, lambda *_: 1.25)
    report = report_of(plan, as_read(turns))
    rate, spent = (
        next(row for row in report.tips[0].rows if (row.variant, row.metric) == ("copy", name))
        for name in (RATE.name, build.name)
    )
    saved = 1000 / (rate.baseline_value or 0) - 1000 / (rate.value or 0)
    expected = f"{(spent.value or 0) / saved:.2g}"
    assert (
        f"pays off after {expected} epochs of 1,000 images"
        in conclusion(report.tips[0], report).why
    )
    turns = make_turns(plan, lambda *_: 0.8)
    why = conclusion(report_of(plan, as_read(turns)).tips[0], report).why
    assert "pays off after infinitely many epochs" in why
