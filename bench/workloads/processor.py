"""What the processor can do, as far as a tip depends on it."""

from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
_BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}


def has_bf16_instructions() -> bool:
    """Whether it computes in BF16 by itself; False where the system doesn't say."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return not _BF16_FLAGS.isdisjoint(flags.split())
