"""From frames to what people read: pictures, both reports, the table on the screen."""

from bench.reporting.outputs import conclude, write

__all__ = ["conclude", "write"]
