"""``report.md``: the report as GitHub renders it."""

import re
from collections.abc import Iterable, Iterator, Sequence

from bench.records.effects import Effect
from bench.records.plan import SECTIONS
from bench.reporting.method import PRIVATE, how_to_read, method
from bench.reporting.model import Report, Seen, TipReport
from bench.reporting.sentences import conclusion, summary
from bench.reporting.units import interval_text, margin_text, percent, quantity


def markdown(report: Report) -> str:
    """The whole report. Text from the machine, the plan or file names is shown as that text."""
    parts = [
        f"# What each training tip is worth on {text(report.machine_name)}",
        " ".join(map(text, summary(report))),
        *_warnings(report),
        "![Each tip's effect with its 95 % interval, beside the margin](figures/overview.png)",
        "## Machine",
        table(("", ""), [(label, value) for label, value in report.machine]),
        "## Verdicts",
        f"{text(how_to_read(report))} **Bold**: the variant that the article recommends. Here each "
        "workload's main metric; the others stand with their tip. Turn spread, there, is the "
        "standard deviation of single turns, a diagnostic that no verdict uses.",
        _verdicts(report),
        *(part for section in SECTIONS for part in _section(section, report)),
        *_left_out(report),
        *_course(report),
        "## Method and limits",
        *map(text, method(report)),
        "## How to reproduce",
        f"```sh\n{report.command}\n```",
        text(PRIVATE),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def text(plain: str) -> str:
    """``plain`` so that GitHub shows just these characters: no markup, no HTML, no formula."""
    line = " ".join(plain.split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = re.sub(r"([\\`*\[\]|~])", r"\\\1", line)
    line = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", line)
    # The way out of formulas that GitHub documents.
    return line.replace("$", "<span>$</span>")


def code(plain: str) -> str:
    """``plain`` as code; also inside a table."""
    line = " ".join(plain.split()) or " "
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}".replace("|", "\\|")


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = ()
) -> str:
    """A table of cells that are Markdown already, apart from line ends.

    ``numbers``: columns that are aligned at the right.
    """
    rules = ["---:" if column in numbers else "---" for column in range(len(head))]
    lines = [head, rules, *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace(chr(10), ' ') for cell in line)} |" for line in lines
    )


def _warnings(report: Report) -> Iterator[str]:
    for warning in report.warnings:
        yield f"> [!WARNING]\n> {text(warning.found)} {text(warning.kind.remedy)}"


def _verdicts(report: Report) -> str:
    head = (
        "Tip",
        "Variant",
        "Workload",
        "Metric",
        "Value",
        "Effect [95 %]",
        "Verdict",
        "Replicates",
        "Reason",
    )
    rows: list[tuple[str, ...]] = []
    for tip in report.tips:
        if tip.tip.is_check:
            rows.append((code(tip.tip.id), "", "check", "", "", "", text(tip.answers), "", ""))
        rows += [_cells(row, tip) for row in tip.main_rows()]
    return table(head, rows, numbers=(4, 7))


def _cells(row: Effect, tip: TipReport) -> tuple[str, ...]:
    variant = code(row.variant)
    if row.is_recommended:
        variant = f"**{variant}**"
    if row.is_baseline:
        variant += " (baseline)"
    verdict = row.verdict or ""
    return (
        code(row.tip),
        variant,
        text(row.workload),
        text(row.metric),
        text(quantity(row.value, row.unit)),
        text(interval_text(row, is_price=tip.tip.is_price)),
        f"{verdict} *(exploratory)*" if row.is_exploratory and row.effect is not None else verdict,
        str(row.replicates),
        text(row.reason or ""),
    )


def _section(section: str, report: Report) -> Iterator[str]:
    tips = [tip for tip in report.tips if tip.tip.section == section]
    if tips:
        yield f"## {'A/A: the same thing twice' if section == 'A/A' else section}"
    for tip in tips:
        yield from _tip(tip, report)


def _tip(tip: TipReport, report: Report) -> Iterator[str]:
    plan = tip.tip
    yield f"### {code(plan.id)}"
    yield f"Claim: {text(plan.claim)}"
    found = conclusion(tip, report)
    yield f"**{text(found.short)}.** {text(found.why)}"
    if plan.note:
        yield text(plan.note)
    yield from _answers(tip) if plan.is_check else _measured(tip)
    yield from _evidence(tip)
    if plan.card.strip():
        yield f"<details><summary>About this tip</summary>\n\n{plan.card.strip()}\n\n</details>"


def _answers(tip: TipReport) -> Iterator[str]:
    """The questions of a check with their answers."""
    yield table(
        ("Question", "Verdict", "What was seen"),
        ((text(row.variant), row.verdict or "", text(row.reason or "")) for row in tip.rows),
    )


def _measured(tip: TipReport) -> Iterator[str]:
    """The picture of a comparison and the table of its effects."""
    plan = tip.tip
    yield f"![{text(f'{plan.id}: its variants with 95 % intervals')}](figures/{tip.picture}.png)"
    head = (
        "Variant",
        "Workload",
        "Metric",
        "Value",
        "Effect [95 %]",
        "Verdict",
        "Margin",
        "Turn spread",
        "Reason",
    )
    spread = {(workload, variant): share for workload, variant, share in tip.turn_spread}
    mains = {(workload.name, workload.metrics[0].name) for workload in plan.workloads}
    yield table(
        head,
        (
            (
                *_cells(row, tip)[1:7],
                text(margin_text(row)),
                percent(round(spread[row.workload, row.variant], 2))
                if (row.workload, row.variant) in spread and (row.workload, row.metric) in mains
                else "",
                text(row.reason or ""),
            )
            for row in tip.rows
        ),
        numbers=(3, 7),
    )


def _evidence(tip: TipReport) -> Iterator[str]:
    if not tip.seen:
        return
    yield "Evidence, as seen inside the arms:"
    yield table(("Variant", "Workload", "Seen"), (_seen(seen) for seen in tip.seen))


def _seen(seen: Seen) -> tuple[str, str, str]:
    facts = "; ".join(f"{text(name)}: {code(value)}" for name, value in seen.facts)
    return code(seen.variant), text(seen.workload), facts


def _left_out(report: Report) -> Iterator[str]:
    images = report.plan.images
    if left_out := images.get("left_out"):
        yield "## Images left out"
        yield (
            "Not all decoders read these files, or not in the same way, so they were left out "
            "for every variant."
        )
        yield table(
            ("Kind", "Files", "Names"),
            (
                (text(kind), str(len(names)), ", ".join(map(code, names)))
                for kind, names in left_out.items()
            ),
            numbers=(1,),
        )


def _course(report: Report) -> Iterator[str]:
    yield "## Course of the run"
    yield (
        "![What ran when, flagged turns, other processes' load, and the GPU's clock, temperature "
        "and power](figures/course.png)"
    )
    yield from map(text, report.course_sentences)
    if report.flags:
        yield table(
            ("Tip", "Flag", "Turns"),
            ((code(tip), text(flag), str(turns)) for tip, flag, turns in report.flags),
            numbers=(2,),
        )
