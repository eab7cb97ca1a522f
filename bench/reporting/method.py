"""What a report says about itself: how to read it, how it was measured, what it cannot tell."""

from bench.reporting.model import Report
from bench.reporting.units import percent, quantity

PRIVATE = (
    "Paths and hosts are private and not written down: put your own for DIR, PATH and HOST:PORT, "
    "and the folder before a model's file. effects.csv, measurements.csv, plan.json and "
    "environment.json beside this file hold all that was measured."
)


def how_to_read(report: Report) -> str:
    """What an effect, an interval and an exploratory variant are."""
    return (
        "An effect above 1× (above 0 for a difference) is better than the tip's baseline, also for "
        "memory and time. In brackets: its 95 % interval. The margin, what is too small to matter, "
        f"is ±{percent(report.plan.margin)} where no other is named. Exploratory variants got "
        "fewer replicates, or do other work, and decide nothing. An effect compares the replicates "
        "that both variants have; where the baseline has more, its value is over all of its own."
    )


def method(report: Report) -> tuple[str, ...]:
    """Paragraphs of plain text: how arms were run, what verdicts mean, what holds beyond."""
    plan, images = report.plan, report.plan.images
    data = ""
    if "count" in images and "total_bytes" in images:
        data = (
            f" Images: {images.get('name', '')}, {images['count']:,} files, "
            f"{quantity(images['total_bytes'], 'bytes')}."
        )
    paces = [
        (tip.tip.id, plan.blocks_of(workload), workload.turn_seconds)
        for tip in report.tips
        for workload in tip.tip.workloads
    ]
    # Plans of earlier versions don't hold how long the turns of such workloads were.
    own = [
        f"{tip_id} {blocks}" + ("" if seconds is None else f" of {quantity(seconds, 's')}")
        for tip_id, blocks, seconds in dict.fromkeys(paces)
        if blocks != plan.blocks or seconds not in (None, plan.turn_seconds)
    ]
    own_pace = f" ({', '.join(own)})" if own else ""
    return (
        "Every variant ran in a process of its own, in turns of about "
        f"{quantity(plan.turn_seconds, 's')}, {plan.blocks} blocks a replicate{own_pace}, the "
        "order drawn anew for each block, and was stopped while it waited. An effect is the mean "
        "over replicates of the log ratio of two variants' values (of the difference where the "
        "metric says so); its interval is Student's t over replicates. A replicate's throughput is "
        "all samples of its turns over all their seconds, its latency the mean of its turns' "
        "medians; what is read once, such as memory or a file's size, is that reading.",
        "“helps” and “hurts”: the 95 % interval lies beyond the margin. “no difference”: the 90 % "
        "interval lies inside it. “gain, size unclear” and “loss, size unclear”: the 95 % interval "
        "excludes no effect, which is perhaps too small to matter. “inconclusive”: none of these.",
        "Of the primary intervals about one in twenty misses by chance; the intervals of other "
        "variants and metrics are not corrected for their number.",
        "The effects hold for this machine and these versions, with batch "
        f"{plan.batch_size}, {plan.image_size} px, model {plan.model}, {plan.threads} threads, "
        f"device {plan.device}, start method {plan.start_method}. They do not tell how a tip does "
        f"elsewhere, with another model, or together with other tips.{data}",
    )
