"""The same loader twice: an A/A pair.

The two are measured as if they were different: what this machine shows where there is nothing to
show. It decides nothing. When its interval is wider than the margin, or lies beside no effect, read
the loading tips' verdicts with that much caution.
"""

from collections.abc import Mapping
from typing import Any

from bench.tips.tip import IMAGES_PER_SECOND, Tip, Variant, Workload
from bench.workloads.work import Context, Work
from bench.workloads.workers import usual_workers


def tip(context: Context) -> Tip:
    """The A/A pair of a loader with half as many workers as cores."""
    return Tip(
        id="aa_loading",
        section="A/A",
        order=1,
        claim="The same loader twice: there is nothing to find.",
        card=__doc__ or "",
        variants=(Variant(name="first"), Variant(name="second", recommended=True)),
        workloads=(Workload(name="loader", build=build, metrics=(IMAGES_PER_SECOND,)),),
    )


def build(settings: Mapping[str, Any], context: Context) -> Work:
    """Drawing batches."""
    from bench.workloads import loaders

    workers = usual_workers(context)
    batches = loaders.usual_batches(context, num_workers=workers)
    return loaders.loading_work(batches, lambda: batches.evidence(num_workers=workers))
