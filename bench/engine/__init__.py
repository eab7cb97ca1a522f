"""Arms, turns, blocks, freezing, monitors, budget, resume: measures tips, knows none by name.

``processes`` starts arms and leaves nothing behind; ``arm`` runs inside them; ``replicate``
measures one replicate of one tip's workload; ``rounds`` decides what is measured next.
"""
