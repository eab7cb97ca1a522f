"""Quantise a model to INT8 for inference.

INT8 weights take a quarter of the space and of the memory traffic, and processors multiply more of
them at once. *Static* quantisation also turns the activations into INT8, with ranges that were seen
on calibration data; *dynamic* quantisation leaves the weights in INT8 and converts the activations
of each call, in Linear (and recurrent) layers only.

**Matters when** the model runs on a CPU: static quantisation for convolutional models, most of all
with INT8 dot products (AVX-512 VNNI, AMX, Arm's dot product); dynamic for models that are mostly
large Linear layers.

**Doesn't matter when** the layers take microseconds, and the conversions cost what the arithmetic
saves; or when a convolutional model is quantised dynamically, which leaves it as it was: the
evidence says which share of the parameters was touched. Accuracy can fall: check it on held-out
data.

**How to apply it**

```python
from torch.ao.quantization import (
    QuantWrapper, convert, fuse_modules, get_default_qconfig, prepare, quantize_dynamic
)

observed = fuse_modules(QuantWrapper(model.eval()), [["module.0", "module.1"]])  # conv and ReLU
observed.qconfig = get_default_qconfig("x86")
prepare(observed, inplace=True)(calibration_images)
static = convert(observed)

dynamic = quantize_dynamic(model, {torch.nn.Linear})
```

`torch.ao.quantization` is what the article names and still works, but is deprecated, and torch
announces its removal. In new code use torchao: its PT2E flow (`prepare_pt2e`, `convert_pt2e`) in
place of the static one, `torchao.quantization.quantize_` in place of the dynamic one. Where a
torch release has `torch.ao.quantization` no longer, the variants are not measurable.

**How it is measured** `digits_cnn`, three convolutions and a Linear layer, and `digits_mlp`, four
Linear layers up to 1024 × 1024, both trained on handwritten digits. Each answers one digit at a
time (and 32), in one thread bound to one core, always on the CPU: these kernels don't run on a
GPU. Accuracy is that on the digits held out; each replicate draws them anew and trains its model
on the others, so that the interval knows of both. The evidence also has the interval that the 797
digits of one replicate allow, of the accuracy and of its difference from FP32's on the same
digits. File size is what `torch.save` writes. Memory is what the process of `digits_mlp` takes once
its model is built: at 8 MiB the model is a small part of that, beside torch's kernels and what the
conversion touched, so expect little here and a saving that grows with the model.

**Where it comes from** The article's advice; torch's documentation of `torch.ao.quantization` and
of its deprecation.
"""

import dataclasses
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.tips.tip import (
    ACCURACY,
    FILE_BYTES,
    HOST_MEMORY,
    INFERENCE_TURN_SECONDS,
    LATENCY_P50,
    LATENCY_P99,
    Tip,
    Variant,
    Workload,
)
from bench.workloads.work import Context, TreatmentNotApplied, Work

if TYPE_CHECKING:
    from torch import nn

    from bench.workloads.digit_models import Trained

CNN = "digits_cnn"
MLP = "digits_mlp"


def tip(context: Context) -> Tip:
    """The tip on both models, one digit at a time first."""
    latency, at_rest = (LATENCY_P50, LATENCY_P99), (FILE_BYTES, ACCURACY)
    return Tip(
        id="quantization",
        section="Compression and deployment",
        order=1,
        claim="Static or dynamic INT8 quantisation lowers latency and memory at inference.",
        card=__doc__ or "",
        variants=(
            Variant(name="FP32", settings={"int8": None}),
            Variant(
                name="static INT8",
                settings={"int8": "static"},
                needs=(needs_engine,),
                recommended=True,
            ),
            Variant(name="dynamic INT8", settings={"int8": "dynamic"}, needs=(needs_engine,)),
        ),
        workloads=(
            Workload(
                name=f"{CNN}, batch 1",
                build=Build(model=CNN, batch=1),
                metrics=latency + at_rest,
                pinned=True,
                turn_seconds=INFERENCE_TURN_SECONDS,
            ),
            Workload(
                name=f"{CNN}, batch 32",
                build=Build(model=CNN, batch=32),
                metrics=(*latency, HOST_MEMORY),
                pinned=True,
                turn_seconds=INFERENCE_TURN_SECONDS,
                memory_scales=(1.0,),
                memory_of_build=False,
            ),
            Workload(
                name=f"{MLP}, batch 32",
                build=Build(model=MLP, batch=32),
                metrics=latency,
                pinned=True,
                turn_seconds=INFERENCE_TURN_SECONDS,
            ),
            # Memory is read where the model is in the cache: training it would be counted too.
            Workload(
                name=f"{MLP}, batch 1",
                build=Build(model=MLP, batch=1),
                metrics=(*latency, *at_rest, HOST_MEMORY),
                pinned=True,
                turn_seconds=INFERENCE_TURN_SECONDS,
                memory_scales=(1.0,),
                memory_of_build=False,
            ),
        ),
    )


def needs_engine(context: Context) -> str | None:
    """The need of INT8: a torch that can quantise, with kernels to run the result."""
    import torch

    try:
        importlib.import_module("bench.workloads.quantized")
    except ImportError:
        return f"torch {torch.__version__} has torch.ao.quantization no longer; torchao replaces it"
    if torch.backends.quantized.engine == "none":
        return f"torch {torch.__version__} has no quantised engine on this machine"
    return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Build:
    """Builds inference of ``model``, ``batch`` digits a step."""

    model: str
    batch: int

    def __call__(self, settings: Mapping[str, Any], context: Context) -> Work:
        """The model as it was trained, or quantised as the settings ask."""
        from bench.workloads.inference import release_memory

        work = self._work(settings["int8"], context)
        # The work holds its model only; what that was made from would be counted as its memory.
        release_memory()
        return work

    def _work(self, int8: str | None, context: Context) -> Work:
        from bench.workloads import digits
        from bench.workloads.digit_models import trained
        from bench.workloads.inference import file_of, inference_work

        start = trained(self.model, context)
        model, evidence = quantise(start, int8)
        readings: dict[str, float | int] = {"file_bytes": len(file_of(model))}
        if self.batch == 1:
            right = digits.recognised(model, start.held_out)
            readings["accuracy_percent"] = digits.percent(right)
            evidence |= digits.accuracy_evidence(right)
            if int8 is not None:
                evidence |= digits.difference_evidence(right, start.right, name="fp32")
        inputs = start.held_out.images[: self.batch]
        return inference_work(model, inputs, evidence=lambda: evidence, readings=readings)


def quantise(start: "Trained", int8: str | None) -> "tuple[nn.Module, dict[str, Any]]":
    """The model that ``int8`` asks for, and what of it is INT8.

    TreatmentNotApplied when nothing is, or not every layer where all should be.
    """
    import torch

    from bench.workloads import quantized

    match int8:
        case "static":
            calibration = start.learnt.images[: quantized.CALIBRATION_DIGITS]
            model = quantized.static_int8(start.model, calibration)
        case "dynamic":
            model = quantized.dynamic_int8(start.model)
        case _:
            model = start.model
    evidence = quantized.int8_evidence(model, start.model)
    wanted = {"static": evidence["layers"], "dynamic": evidence["linear_layers"]}
    if int8 is not None:
        evidence["engine"] = torch.backends.quantized.engine
    if evidence["int8_layers"] != wanted.get(int8 or "", 0):
        raise TreatmentNotApplied(
            f"{evidence['int8_layers']} of {evidence['layers']} layers have INT8 weights"
        )
    return model, evidence
