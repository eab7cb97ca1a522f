"""Most of what goes wrong in training is decided before the first step.

A torch that is built for another CUDA than the driver knows, a torchvision of another release, a
container with 64 MiB of shared memory, a laptop on battery: each makes training fail or crawl, and
each makes a measurement of it worthless. A virtual environment keeps the `pip install` of another
project from changing what you measured.

**Matters when** you train at all; it costs a second. Run it again after each change of driver or
packages.

**How to apply it**

```sh
python3 -m venv .venv && . .venv/bin/activate
pip install torch torchvision          # both at once, so that they are of one release
python -m bench env                    # the same questions, any time
```

```python
print(torch.__version__, torch.version.cuda, torch.backends.cudnn.version())
print([torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())])
```

**How it is answered** Each question by looking at the machine itself, in a process of its own: a
convolution is run, an operator is called, a limit is read. `fail`: something will break or spoil
results; `warn`: it may.
"""

from collections.abc import Mapping
from typing import Any

from bench.tips.tip import Need, Tip, Variant, needs_cuda
from bench.workloads import surroundings
from bench.workloads.work import CheckResult, Context

NEEDS: Mapping[str, Need] = {
    "CUDA build and driver": surroundings.needs_nvidia,
    "GPU architecture": surroundings.needs_capability,
    "cuDNN": needs_cuda,
    "shared memory": surroundings.needs_shared_memory,
    "CPU governor": surroundings.needs_governor,
    "disk of the data": surroundings.needs_known_disk,
}


def tip(context: Context) -> Tip:
    """The questions about the machine and its software."""
    return Tip(
        id="environment",
        section="Environment",
        order=1,
        claim=(
            "Isolate the environment, and see that driver, CUDA, cuDNN and torch fit together "
            "before you train."
        ),
        card=__doc__ or "",
        variants=tuple(
            Variant(
                name=question,
                settings={"question": question},
                needs=(NEEDS[question],) if question in NEEDS else (),
            )
            for question in surroundings.QUESTIONS
        ),
        check=check,
    )


def check(settings: Mapping[str, Any], context: Context) -> CheckResult:
    """Answer one question."""
    return surroundings.QUESTIONS[settings["question"]](context)
