"""Write the effects.csv of many synthetic machines: ``python tests/make_machines.py 1000 DIR``.

Each machine has its own true effect of each tip; five replicates measure it with noise.
"""

import dataclasses
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.analysis.intervals import Estimate, combined_interval
from bench.analysis.verdicts import decide
from bench.records.effects import Effect, write_effects
from bench.records.plan import SECTIONS

MARGIN = 0.03
CPUS = ("AMD EPYC 7763", "Intel Xeon Platinum 8481C", "Apple M3 Pro", "AMD Ryzen 9 7950X")
GPUS = (None, None, "NVIDIA H200", "NVIDIA GeForce RTX 4090")
TORCHES = ("2.14.1", "2.14.1", "2.13.0")
TIPS = tuple(f"tip_{number:02d}" for number in range(20))
EFFECTS: Mapping[str, float] = {tip: math.exp(0.04 * (n - 6)) for n, tip in enumerate(TIPS)}
"""The typical effect of each tip's recommended variant."""


def machine(
    number: int,
    *,
    tips: Mapping[str, float] = EFFECTS,
    between: float = 0.1,
    noise: float = 0.015,
    replicates: int = 5,
    speed: float = 1.0,
    absent: float = 0.05,
    seed: int = 0,
) -> list[Effect]:
    """The rows of the ``number``-th machine: for each tip a baseline and two variants, two metrics.

    ``between``: standard deviation of the true log effects between machines; ``noise``: that of
    a replicate; ``speed``: the machine's own; ``absent``: the share of rows not measurable there.
    """
    return list(_rows(number, tips, between, noise, replicates, speed, absent, seed))


def _rows(
    number: int,
    tips: Mapping[str, float],
    between: float,
    noise: float,
    replicates: int,
    speed: float,
    absent: float,
    seed: int,
) -> Iterator[Effect]:
    random = np.random.default_rng([seed, number])
    gpu = GPUS[number % len(GPUS)]
    for place, (tip, typical) in enumerate(tips.items()):
        common = Effect(
            run_id=f"run{number:08d}",
            machine_id=f"{number:012x}",
            machine_name=f"made-up-{number}",
            cpu_model=CPUS[number % len(CPUS)],
            usable_cores=2 ** (1 + number % 6),
            gpu_model=gpu,
            driver_version=gpu and "580.95",
            cuda_version="13.0",
            torch_version=TORCHES[number % len(TORCHES)],
            torchvision_version="0.29.1",
            python_version="3.11.2",
            profile="quick",
            workload="loader",
            model="small_cnn",
            batch_size=16,
            image_size=224,
            threads=2,
            start_method="fork",
            device="cpu",
            section=SECTIONS[place % len(SECTIONS)],
            tip=tip,
            variant="off",
            is_baseline=True,
            is_recommended=False,
            metric="samples_per_second",
            unit="samples/s",
            is_primary=True,
            replicates=replicates,
            blocks=6 * replicates,
            margin=MARGIN,
            images_checksum="5f" * 32,
            higher_is_better=True,
        )
        base = math.log(500 * speed) + noise * random.standard_normal(replicates)
        yield _valued(common, base)
        for variant, share in (("on", 1.0), ("half on", 0.5)):
            true = share * (math.log(typical) + between * random.standard_normal())
            for metric, unit in (("samples_per_second", "samples/s"), ("bytes_per_second", "B/s")):
                row = dataclasses.replace(
                    common,
                    variant=variant,
                    is_baseline=False,
                    is_recommended=variant == "on",
                    metric=metric,
                    unit=unit,
                    is_primary=metric == "samples_per_second",
                    is_exploratory=variant != "on",
                )
                gained = true + noise * random.standard_normal(replicates)
                if random.random() < absent:
                    yield dataclasses.replace(
                        row, verdict="not measurable here", reason="needs CUDA", replicates=0
                    )
                else:
                    yield _judged(_valued(row, base + gained), base, gained)


def _valued(row: Effect, logs: np.ndarray) -> Effect:
    error = float(logs.std(ddof=1)) / math.sqrt(len(logs))
    return dataclasses.replace(row, value=math.exp(logs.mean()), value_standard_error=error)


def _judged(row: Effect, base: np.ndarray, gained: np.ndarray) -> Effect:
    own = Estimate(
        mean=float(gained.mean()),
        standard_error=float(gained.std(ddof=1)) / math.sqrt(len(gained)),
        degrees_of_freedom=len(gained) - 1,
    )
    # What student_interval gives, without statsmodels' time for a hundred thousand rows.
    interval = combined_interval([own], [1])
    return dataclasses.replace(
        row,
        baseline_value=math.exp(base.mean()),
        effect=math.exp(interval.mean),
        ci_low=math.exp(interval.low),
        ci_high=math.exp(interval.high),
        standard_error=interval.standard_error,
        degrees_of_freedom=len(gained) - 1,
        verdict=decide(interval, math.log1p(MARGIN)),
    )


if __name__ == "__main__":
    count, folder = int(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for made in range(count):
        write_effects(folder / f"machine-{made:04d}.csv", machine(made))
    print(f"{count} machines in {folder}")
