"""Measures what each well-known PyTorch training tip is worth on this machine.

The layers, from the top; a module imports from those below it, never from above:

- ``cli``, ``pytest_plugin``: the two ways in; ``live`` shows a run, ``comparing``,
  ``publishing``, ``profile_command`` and ``selfcheck`` (with its ``bare_loop``) are commands of
  their own
- ``session``: one run from its options to its report; ``options``, ``resuming``: what it goes by
- ``reporting``: from frames to what people read
- ``analysis``: from turns to effects and verdicts; knows no torch
- ``engine``: arms, turns, blocks, freezing, rounds; knows no tip by name
- ``tips``: one file a tip
- ``workloads``: images, decoders, loaders, models, training steps
- ``records``: the CSV and JSON formats, the machine's identity
"""

__version__ = "0.1.0"
