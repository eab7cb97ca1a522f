"""Prune the weights that matter least.

Many weights of a trained model hardly change its answers. With them at zero, the model has fewer
numbers to store and, so the hope goes, to multiply.

**Matters when** the file is compressed, the runtime has kernels for sparse weights, or the empty
channels are really cut out of the layers.

**Doesn't matter when** torch runs the model as it is: it multiplies zeros as it multiplies any
number, and neither single zeros nor whole empty channels spare it an operation, unless the layers
are rebuilt smaller. Before `prune.remove`, a pruned model even holds two tensors in the place of
each weight: its file is twice as large, and each call applies the masks anew. Accuracy falls with
what is taken away, and comes back in part when the model is trained further.

**How to apply it**

```python
from torch.nn.utils import prune

for layer in layers:
    prune.l1_unstructured(layer, "weight", amount=0.5)
    # whole output channels: prune.ln_structured(layer, "weight", amount=0.5, n=2, dim=0)
...  # train a little further: the masks keep the zeros
for layer in layers:
    prune.remove(layer, "weight")
```

**How it is measured** `digits_cnn`, three convolutions and a Linear layer, trained on handwritten
digits; the convolutions are pruned, layer by layer, fine-tuned for a few steps, and their masks
removed; the dense model is trained as much further. It answers one digit at a time, in one thread
bound to one core, on the CPU. The file is what `torch.save` writes, its compressed size what zip
makes of that. Accuracy is that after fine-tuning, on digits held out; each replicate draws them
anew and trains its model on the others.
The evidence has the accuracy before fine-tuning too, and the interval that the 797 digits of one
replicate allow, of the accuracy and of its difference from the dense model's on the same digits.

**Where it comes from** The article's advice; torch's documentation of `torch.nn.utils.prune`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bench.tips.tip import (
    ACCURACY,
    FILE_BYTES,
    INFERENCE_TURN_SECONDS,
    LATENCY_P50,
    LATENCY_P99,
    Tip,
    Variant,
    Workload,
)
from bench.workloads.work import Context, Work

COMPRESSED_BYTES = dataclasses.replace(
    FILE_BYTES, name="compressed_bytes", column="compressed_bytes"
)


def tip(context: Context) -> Tip:
    """The tip on the convolutional model of digits."""
    return Tip(
        id="pruning",
        section="Compression and deployment",
        order=2,
        claim="Pruning weights or whole channels makes a model smaller and faster.",
        card=__doc__ or "",
        variants=(
            Variant(name="dense"),
            _variant("L1 unstructured 50 %", "l1_unstructured", 0.5, recommended=True),
            _variant("L1 unstructured 90 %", "l1_unstructured", 0.9),
            _variant("Ln structured 50 %", "ln_structured", 0.5),
        ),
        workloads=(
            Workload(
                name="digits_cnn, batch 1",
                build=build,
                metrics=(LATENCY_P50, LATENCY_P99, FILE_BYTES, COMPRESSED_BYTES, ACCURACY),
                pinned=True,
                turn_seconds=INFERENCE_TURN_SECONDS,
            ),
        ),
    )


def _variant(name: str, method: str, amount: float, *, recommended: bool = False) -> Variant:
    return Variant(
        name=name, settings={"method": method, "amount": amount}, recommended=recommended
    )


def build(settings: Mapping[str, Any], context: Context) -> Work:
    """Inference of the dense model, or of one pruned with ``method`` by ``amount``."""
    from bench.workloads import compression, digits
    from bench.workloads.digit_models import CNN, trained
    from bench.workloads.inference import file_of, inference_work

    start = trained(CNN, context)
    pruned = compression.pruned(context, **settings) if settings else None
    dense = compression.dense(context)
    model = pruned.model if pruned else dense
    file = file_of(model)
    right = digits.recognised(model, start.held_out)

    def evidence() -> dict[str, Any]:
        seen = compression.sparsity_evidence(file, amount=settings.get("amount", 0.0))
        seen |= digits.accuracy_evidence(right)
        if pruned is None:
            return seen
        return {
            **seen,
            **digits.difference_evidence(
                right, digits.recognised(dense, start.held_out), name="dense"
            ),
            "accuracy_before_fine_tuning_percent": round(digits.percent(pruned.untuned), 2),
            "file_bytes_with_masks": pruned.bytes_with_masks,
        }

    return inference_work(
        model,
        start.held_out.images[:1],
        evidence=evidence,
        readings={
            "file_bytes": len(file),
            "compressed_bytes": compression.compressed_bytes(file),
            "accuracy_percent": digits.percent(right),
        },
    )
