"""ONE FILE A TIP: its claim, variants, workload, evidence, and nothing else.

A tip's module holds ``tip(context) -> Tip``. Adding a tip is adding one file here; importing it
must not import torch.
"""

import importlib
import pkgutil

from bench.records.plan import SECTIONS
from bench.tips.tip import Tip
from bench.workloads.work import Context


def catalogue(context: Context) -> tuple[Tip, ...]:
    """Every tip as it stands on the machine that ``context`` describes, in the article's order."""
    names = (module.name for module in pkgutil.iter_modules(__path__) if module.name != "tip")
    tips = (importlib.import_module(f"{__name__}.{name}").tip(context) for name in names)
    return tuple(sorted(tips, key=lambda tip: (SECTIONS.index(tip.section), tip.order)))
