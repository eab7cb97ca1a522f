"""From turns to conclusions: effects with their intervals, verdicts, noise; no torch, no tip."""
