"""How many workers a DataLoader gets."""

from bench.workloads.work import Context

MOST_WORKERS = 32
"""More than these help nobody, and each takes memory and a second to start."""

PREFETCH_FACTORS = (2, 4, 1, 8)
"""Batches that a worker prepares ahead, as they are compared: torch's default first."""


def usual_workers(context: Context) -> int:
    """Half the cores, at least 1: where the number of workers is not what is compared."""
    return max(1, min(MOST_WORKERS, context.cores // 2))


def worker_a_core(context: Context) -> int:
    """As many as there are usable cores, at least 2."""
    return max(2, min(MOST_WORKERS, context.cores))
