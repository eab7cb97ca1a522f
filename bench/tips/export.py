"""Export the model for inference: ONNX Runtime, TorchScript.

Eager torch runs one operation after another, each called from Python. A
runtime that knows the whole graph fuses operations (convolution, normalisation and activation
become one), plans its memory ahead, and leaves Python out.

**Matters when** inference runs on a CPU, in small batches, through many small operations; and
where the model has to run without Python or torch.

**Doesn't matter when** the time goes into large batches of large matrix products, which take the
same time everywhere. A model whose control flow hangs on its data is traced wrongly or not exported
at all.

**How to apply it**

```python
torch.onnx.export(model.eval(), (images,), "model.onnx")  # pip install onnx onnxscript onnxruntime
session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
outputs = session.run(None, {session.get_inputs()[0].name: images.numpy()})
```

The file can be two: the weights often lie beside it in `model.onnx.data`. ONNX Runtime takes all
cores unless `SessionOptions.intra_op_num_threads` says otherwise.

TorchScript (`torch.jit`) is what the article names beside ONNX. It still works, but is deprecated
since torch 2.5: `torch.export`, and `torch.compile` within Python, take its place.

**How it is measured** The suite's small convolutional model, or the one that `--model` names, with
random weights. Every variant writes its files, reads them back, and answers from what was read,
one image at a time (and 32), always on the CPU, with the same number of threads. The size is that
of all files. The exporter goes through `torch.export` where onnxscript is installed and traces
otherwise; the evidence says which, the operator set that the file has, and the execution provider.
Outputs that differ from eager's by more than a thousandth of the largest fail.

**Where it comes from** The article's advice; the documentation of `torch.onnx` and ONNX Runtime.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bench.tips.tip import FILE_BYTES, LATENCY_P50, LATENCY_P99, Tip, Variant, Workload
from bench.workloads.models import SMALL_CNN
from bench.workloads.work import Context, Work


def tip(context: Context) -> Tip:
    """The tip on the user's model, or the small one."""
    metrics = (LATENCY_P50, LATENCY_P99, FILE_BYTES)
    return Tip(
        id="export",
        section="Compression and deployment",
        order=4,
        claim="ONNX Runtime and TorchScript make inference faster.",
        card=__doc__ or "",
        variants=(
            Variant(name="eager", settings={"runtime": "eager"}),
            Variant(
                name="ONNX Runtime",
                settings={"runtime": "onnx"},
                needs=(needs_onnx_runtime,),
                recommended=True,
            ),
            Variant(
                name="TorchScript", settings={"runtime": "torchscript"}, needs=(needs_torchscript,)
            ),
        ),
        workloads=(
            Workload(name="CPU inference, batch 1", build=Build(batch=1), metrics=metrics),
            Workload(name="CPU inference, batch 32", build=Build(batch=32), metrics=metrics),
        ),
    )


def needs_onnx_runtime(context: Context) -> str | None:
    """The need of ONNX: its runtime, and a torch that can write the file."""
    from bench.workloads.decoders.decoder import import_problem
    from bench.workloads.exported import exporter, trial_problem

    if problem := import_problem("onnxruntime", package="onnxruntime"):
        return problem
    if exporter() == "torch.export":
        return import_problem("onnxscript", package="onnxscript")
    return trial_problem()


def needs_torchscript(context: Context) -> str | None:
    """The need of TorchScript: a torch that still traces."""
    import torch

    try:
        torch.jit.freeze(torch.jit.trace(torch.nn.ReLU().eval(), torch.zeros(1)))
    except Exception as error:
        return f"torch {torch.__version__} has TorchScript no longer: {error}"
    return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Build:
    """Builds inference of ``batch`` images a step, from the files that the runtime read back."""

    batch: int

    def __call__(self, settings: Mapping[str, Any], context: Context) -> Work:
        """Seeded weights and images; a device of the training tips' changes nothing here."""
        import torch

        from bench.workloads.exported import exported
        from bench.workloads.inference import inference_work
        from bench.workloads.models import build_model, model_label

        name = context.model or SMALL_CNN
        torch.manual_seed(context.seed)
        model = build_model(name)
        inputs = torch.randn(self.batch, 3, context.image_size, context.image_size)
        read_back = exported(settings["runtime"], model, inputs, context)
        return inference_work(
            read_back.predict,
            inputs,
            evidence=lambda: {
                "model": model_label(name),
                **read_back.facts,
                "largest_output_difference": read_back.difference,
            },
            readings={
                "file_bytes": read_back.file_bytes,
                "output_difference": read_back.difference,
            },
        )
