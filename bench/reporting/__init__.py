"""From frames to what people read: pictures, ``report.md``, the table on the screen."""

from bench.reporting.outputs import write

__all__ = ["write"]
