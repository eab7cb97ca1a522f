"""What differs between runs besides the machines, and whether that makes comparing unfair."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

from bench.analysis.comparison import Run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fact:
    """One thing that runs can differ in; ``column`` is that of ``effects.csv``.

    ``confounds`` says what a difference does to the comparison; None where it is what people
    compare.
    """

    column: str
    name: str
    kind: Literal["machine", "software", "settings"]
    confounds: str | None = None


FACTS = (
    Fact(column="cpu_model", name="CPU", kind="machine"),
    Fact(column="usable_cores", name="Usable cores", kind="machine"),
    Fact(column="gpu_model", name="GPU", kind="machine"),
    Fact(
        column="driver_version",
        name="NVIDIA driver",
        kind="software",
        confounds="Another driver can be faster or slower by itself.",
    ),
    Fact(
        column="cuda_version",
        name="CUDA",
        kind="software",
        confounds="Another CUDA brings other kernels and libraries.",
    ),
    Fact(
        column="torch_version",
        name="torch",
        kind="software",
        confounds="What differs may come from the release of torch.",
    ),
    Fact(
        column="torchvision_version",
        name="torchvision",
        kind="software",
        confounds="Its decoders and transforms change between releases.",
    ),
    Fact(
        column="python_version",
        name="Python",
        kind="software",
        confounds="Loading and starting processes change between releases of Python.",
    ),
    Fact(
        column="profile",
        name="Profile",
        kind="settings",
        confounds="Profiles differ in the length of turns and in the number of replicates.",
    ),
    Fact(
        column="device",
        name="Device",
        kind="settings",
        confounds="Training on a CPU is other work than on a GPU.",
    ),
    Fact(
        column="model",
        name="Model",
        kind="settings",
        confounds="The training step is another one.",
    ),
    Fact(
        column="batch_size",
        name="Batch size",
        kind="settings",
        confounds="It sets how much work hides a fixed cost.",
    ),
    Fact(
        column="image_size",
        name="Image size",
        kind="settings",
        confounds="It sets the share of decoding and of training.",
    ),
    Fact(
        column="images_checksum",
        name="Images",
        kind="settings",
        confounds="Decoding and loading take the time that the images need.",
    ),
    Fact(
        column="threads",
        name="Threads",
        kind="settings",
        confounds="Tips that use more cores compete with the threads that compute.",
    ),
    Fact(
        column="start_method",
        name="Start method",
        kind="settings",
        confounds="Workers start and share memory in another way.",
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variation:
    """A fact that is not the same in all runs.

    ``values``: each value with the places of the runs that have it, those of most runs first;
    None is not known.
    """

    fact: Fact
    values: tuple[tuple[str | int | None, tuple[int, ...]], ...]

    @property
    def is_unfair(self) -> bool:
        """Whether a difference of effects may come from this and not from the machines."""
        return self.fact.confounds is not None


def variations(runs: Sequence[Run]) -> list[Variation]:
    """What differs between the runs."""
    found = []
    for fact in FACTS:
        places: dict[str | int | None, list[int]] = {}
        for place, run in enumerate(runs):
            places.setdefault(getattr(run.facts, fact.column), []).append(place)
        if len(places) > 1:
            ordered = sorted(places.items(), key=lambda item: (-len(item[1]), str(item[0])))
            values = tuple((value, tuple(its)) for value, its in ordered)
            found.append(Variation(fact=fact, values=values))
    return found


def unknown_in_all(runs: Sequence[Run]) -> list[Fact]:
    """Settings that no run names, so that nobody can see whether they are the same."""
    return [
        fact
        for fact in FACTS
        if fact.kind == "settings" and all(getattr(run.facts, fact.column) is None for run in runs)
    ]
