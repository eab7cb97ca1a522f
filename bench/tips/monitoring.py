"""Watching a training run shows what holds it back; it should cost next to nothing.

`nvidia-smi`, `iostat` and `htop` read counters that the driver and the kernel keep anyway. A look
costs a few milliseconds of one core; a program that is started for each look costs its start.

**Matters when** the GPU is not busy and you don't know why: a low utilisation with a busy CPU or
disk is a loader that is too slow, a falling clock with a high temperature is a GPU that is held
back.

**Doesn't matter when** training is as fast as you need it. It costs most when looks are frequent,
each starts a process (`watch -n 0.1 nvidia-smi`), or all cores are busy already.

**How to apply it**

```sh
nvidia-smi dmon -s pucm -d 1    # one process that goes on looking
iostat -x 1
htop
```

**How it is measured** A training step with and without a thread that looks once a second, in turns
of two looks each: a look a second is what a second of training pays.
"""

import dataclasses
import shutil
from collections.abc import Mapping
from typing import Any

from bench.tips.tip import THROUGHPUT, Tip, Variant, Workload, needs_cuda
from bench.workloads.work import Context, TreatmentNotApplied, Work

PERIOD_SECONDS = 1.0
LOOKS_A_TURN = 2
BLOCKS = 2


def needs_smi(context: Context) -> str | None:
    """The need of the nvidia-smi program."""
    return None if shutil.which("nvidia-smi") else "there is no nvidia-smi on the PATH"


def tip(context: Context) -> Tip:
    """The tip: what watching costs."""
    return Tip(
        id="monitoring",
        section="Environment",
        order=5,
        claim="Watch GPU, disks and CPU while you train (nvidia-smi, iostat, htop).",
        card=__doc__ or "",
        is_price=True,
        variants=(
            Variant(name="off", settings={"look": None}),
            Variant(
                name="on, every 1 s",
                settings={"look": "counters", "period_seconds": PERIOD_SECONDS},
                recommended=True,
            ),
            Variant(
                name="nvidia-smi started every 1 s",
                settings={"look": "smi", "period_seconds": PERIOD_SECONDS},
                needs=(needs_cuda, needs_smi),
            ),
        ),
        workloads=(
            Workload(
                name="training step",
                build=build,
                metrics=(THROUGHPUT,),
                turn_seconds=LOOKS_A_TURN * PERIOD_SECONDS,
                blocks=BLOCKS,
            ),
        ),
    )


def build(settings: Mapping[str, Any], context: Context) -> Work:
    """The training step, watched as the settings say."""
    import torch

    from bench.workloads import watching
    from bench.workloads.training import training_work

    work = training_work(context)
    if settings["look"] is None:
        return work
    uuid = None
    if context.device != "cpu":
        uuid = str(torch.cuda.get_device_properties(context.device).uuid)
    look = watching.smi() if settings["look"] == "smi" else watching.counters(uuid)
    watcher = watching.Watcher(look, settings["period_seconds"])

    def prepare(steps: int) -> None:
        work.prepare(steps)
        watcher.start()

    def readings() -> Mapping[str, float | int]:
        watcher.stop()
        if not watcher.last:
            raise TreatmentNotApplied(f"{watcher.looks} looks in the turn saw nothing")
        return work.readings()

    def evidence() -> dict[str, Any]:
        return {"looks": watcher.looks, "seen": sorted(watcher.last), **work.evidence()}

    def close() -> None:
        watcher.stop()
        work.close()

    return dataclasses.replace(
        work, prepare=prepare, readings=readings, evidence=evidence, close=close
    )
