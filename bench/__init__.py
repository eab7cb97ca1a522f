"""Measures what each well-known PyTorch training tip is worth on this machine.

Layers, an arrow only points down: ``cli`` and ``pytest_plugin`` → ``session`` → ``reporting`` →
``analysis`` → ``engine`` → ``tips`` → ``workloads`` → ``records`` → ``errors``.
"""

__version__ = "0.1.0"
