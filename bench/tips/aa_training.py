"""The same training step twice: an A/A pair.

The two are measured as if they were different: what this machine shows where there is nothing to
show. It decides nothing. When its interval is wider than the margin, or lies beside no effect, read
the training tips' verdicts with that much caution.
"""

from collections.abc import Mapping
from typing import Any

from bench.tips.tip import THROUGHPUT, Tip, Variant, Workload
from bench.workloads.work import Context, Work


def tip(context: Context) -> Tip:
    """The A/A pair of the training step."""
    return Tip(
        id="aa_training",
        section="A/A",
        order=2,
        claim="The same training step twice: there is nothing to find.",
        card=__doc__ or "",
        variants=(Variant(name="first"), Variant(name="second", recommended=True)),
        workloads=(Workload(name="training step", build=build, metrics=(THROUGHPUT,)),),
    )


def build(settings: Mapping[str, Any], context: Context) -> Work:
    """The training step alone."""
    from bench.workloads.training import training_work

    return training_work(context)
