"""Which GPUs a process sees: what CUDA_VISIBLE_DEVICES means, and what a process makes of it.

Run as a program, it takes memory on each GPU that torch shows it, prints these GPUs as one line of
JSON, and ends when its standard input does.
"""

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.workloads.nvml import with_prefix
from bench.workloads.work import CheckResult, Context, Stopwatch

VARIABLE = "CUDA_VISIBLE_DEVICES"
NOTHING_BYTES = 16 << 20
"""Less than this is not a program on the GPU: a CUDA context alone takes hundreds of MiB."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen:
    """What a program saw: its GPUs, what it took on the others, and the seconds that it needed.

    ``hidden_bytes`` is None where no GPU was hidden or its memory can't be read.
    """

    uuids: tuple[str, ...]
    hidden_bytes: int | None
    startup_seconds: float | None


def visible(value: str | None, gpus: Sequence[str], migs: Sequence[str] = ()) -> tuple[str, ...]:
    """The devices that CUDA shows for this value of CUDA_VISIBLE_DEVICES, in the program's order.

    ``gpus``: the UUIDs of all GPUs ("GPU-…") in the order of the PCI bus; ``migs``: those of their
    MIG devices ("MIG-…"). None is a variable that is not set: all GPUs. Numbers count GPUs, names
    may be cut short where they stay clear, the list ends before the first entry that names none
    (so "-1" and "" show nothing), and one that names a device twice shows nothing at all.

    Source: CUDA Programming Guide, "CUDA Environment Variables".
    """
    if value is None:
        return tuple(gpus)
    found: list[str] = []
    for entry in value.split(","):
        device = _device(entry.strip(), gpus, migs)
        if device is None:
            break
        if device in found:
            return ()
        found.append(device)
    return tuple(found)


def _device(entry: str, gpus: Sequence[str], migs: Sequence[str]) -> str | None:
    if entry.startswith(("GPU-", "MIG-")):
        named = [device for device in (*gpus, *migs) if device.startswith(entry)]
        return named[0] if len(named) == 1 else None
    # CUDA reads a number as C's strtoul does: "1x" is 1.
    number = re.match(r"\+?(\d+)", entry)
    if number is None or int(number[1]) >= len(gpus):
        return None
    return gpus[int(number[1])]


def judge(
    *, wanted: Sequence[str], seen: Seen, how: str, evidence: Mapping[str, Any]
) -> CheckResult:
    """Whether a program that was shown ``wanted`` saw just these, and left the others alone."""
    # UUIDs name one machine: they are compared here and counted in what is published.
    evidence = {
        **evidence,
        "wanted": len(wanted),
        "seen": len(seen.uuids),
        "same_uuids": tuple(wanted) == seen.uuids,
        "hidden_bytes": seen.hidden_bytes,
        "startup_seconds": seen.startup_seconds,
    }
    if tuple(wanted) != seen.uuids:
        return CheckResult(
            verdict="fail",
            reason=(
                f"{how}: the program saw {len(seen.uuids)} GPUs that are not the {len(wanted)} "
                "asked for. Set the variable before the program starts, not in it."
            ),
            evidence=evidence,
        )
    if seen.hidden_bytes is not None and seen.hidden_bytes >= NOTHING_BYTES:
        return CheckResult(
            verdict="warn",
            reason=(
                f"{how}: memory on the hidden GPUs grew by {seen.hidden_bytes >> 20} MiB. "
                "If nothing else ran there, the program reached them: hide them with the variable."
            ),
            evidence=evidence,
        )
    alone = "" if seen.hidden_bytes is None else ", and took no memory on the others"
    return CheckResult(
        verdict="pass",
        reason=f"{how}: the program saw {len(seen.uuids)} of the GPUs{alone}",
        evidence=evidence,
    )


def ask(settings: Mapping[str, Any], context: Context) -> CheckResult:
    """Answer the question ``settings["show"]``: "all", "index", "uuid", "none" or "device_ids"."""
    gpus = all_uuids()
    allowed = visible(os.environ.get(VARIABLE), gpus)
    # The last one: its number in the program (0) differs from its own where there are several.
    chosen = allowed[-1]
    shown = {
        "all": allowed,
        "index": (chosen,),
        "uuid": (chosen,),
        "none": (),
        "device_ids": (chosen,),
    }[settings["show"]]
    value = {
        "all": ",".join(allowed),
        "index": str(gpus.index(chosen)),
        "uuid": chosen,
        "none": "",
        "device_ids": ",".join(allowed),
    }[settings["show"]]
    only = len(allowed) - 1 if settings["show"] == "device_ids" else None
    hidden = [gpu for gpu in gpus if gpu not in shown]
    seen = run_program(value, only, hidden, context.stopwatch)
    how = "device_ids" if only is not None else settings["show"]
    return judge(wanted=shown, seen=seen, how=how, evidence={"gpus": len(gpus)})


def run_program(
    value: str, only: int | None, hidden: Sequence[str], stopwatch: Stopwatch | None
) -> Seen:
    """Start a program with CUDA_VISIBLE_DEVICES at ``value`` and see what it sees and takes.

    ``only``: the one GPU that it works on though it sees all of them.
    """
    before = used_bytes(hidden)
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, *([] if only is None else [str(only)])],
        # Numbers then count GPUs in the order of the PCI bus, as nvidia-smi does.
        env={**os.environ, VARIABLE: value, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    line = ""

    def start() -> None:
        nonlocal line
        assert process.stdout is not None
        line = process.stdout.readline()

    try:
        seconds = None
        if stopwatch is None:
            start()
        else:
            seconds = stopwatch(start)
        if not line:
            raise RuntimeError(f"the program ended with exit code {process.wait()}")
        during = used_bytes(hidden)
        grown = None
        if before is not None and during is not None:
            grown = max(0, during - before)
        return Seen(uuids=tuple(json.loads(line)), hidden_bytes=grown, startup_seconds=seconds)
    finally:
        process.communicate()


def all_uuids() -> list[str]:
    """The UUIDs of all GPUs of the machine, in the order of the PCI bus."""
    import pynvml

    pynvml.nvmlInit()
    handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
    return [_text(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]


def used_bytes(uuids: Sequence[str]) -> int | None:
    """Memory in use on these GPUs together; None for none of them, or where NVML doesn't tell."""
    if not uuids:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = map(pynvml.nvmlDeviceGetHandleByUUID, uuids)
        return sum(int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles)
    except pynvml.NVMLError:
        return None


def needs_list_of_gpus(context: Context) -> str | None:
    """The need of NVML, which shows the GPUs that CUDA hides."""
    try:
        if any(visible(os.environ.get(VARIABLE), all_uuids())):
            return None
    except Exception as error:
        return f"needs nvidia-ml-py and NVML, to see hidden GPUs: {type(error).__name__}: {error}"
    return f"{VARIABLE} shows no whole GPU (MIG devices are not told apart here)"


def needs_two_gpus(context: Context) -> str | None:
    """The need of a GPU that can be hidden from a program that works on another."""
    count = len(visible(os.environ.get(VARIABLE), all_uuids()))
    return None if count >= 2 else f"needs 2 GPUs, this machine shows {count}"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def main(only: int | None, show: Callable[[str], object]) -> None:
    """Take memory on the GPUs that torch shows (on number ``only`` alone, if given), name them."""
    import torch

    count = torch.cuda.device_count()
    chosen = range(count) if only is None else [only]
    uuids = []
    for index in chosen:
        torch.ones(1 << 20, device=f"cuda:{index}")
        uuids.append(with_prefix(str(torch.cuda.get_device_properties(index).uuid)))
    show(json.dumps(uuids) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else None, sys.stdout.write)
    sys.stdout.flush()
    sys.stdin.read()
