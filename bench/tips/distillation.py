"""Train a small model on a large one's soft labels.

A teacher's answer says more than a label: which digits the picture also
resembles, and how much. A student that learns these softened answers gets more out of each
example, most of all where examples with labels are few.

**Matters when** a small model is needed for its latency or size, a good large one exists, and
labelled data are scarce.

**Doesn't matter when** the labels alone take the student as far as it can go, or the teacher is
hardly better than the student. Training takes longer: the teacher has to be trained and asked.

**How to apply it**

```python
T = 4.0  # temperature
soft = kl_div(log_softmax(student(x) / T, 1), softmax(teacher(x) / T, 1), reduction="batchmean")
loss = 0.9 * T**2 * soft + 0.1 * cross_entropy(student(x), labels)
```

**How it is measured** The student is a network with one hidden layer of 32, the teacher
`digits_cnn`, trained on 1,000 digits. Each replicate draws its digits anew, trains a teacher, and
trains five students, each on 100 labelled digits and from initial weights of its own: with the
labels alone, and with the teacher's soft labels for the same 100 digits. Digits, initial weights,
batches and the number of steps are the same both ways. The accuracy of a replicate is the mean of
its five students on the 797 digits held out; a difference below 0.5 points counts as none. The
teacher is a row of its own: what its accuracy costs in latency and size. Inference is one digit at
a time, in one thread bound to one core, on the CPU.

**Where it comes from** The article's advice; Hinton, Vinyals and Dean, "Distilling the Knowledge
in a Neural Network", arXiv:1503.02531.
"""

from collections.abc import Mapping
from typing import Any

from bench.tips.tip import (
    ACCURACY,
    FILE_BYTES,
    INFERENCE_TURN_SECONDS,
    LATENCY_P50,
    Tip,
    Variant,
    Workload,
)
from bench.workloads.work import Context, TreatmentNotApplied, Work


def tip(context: Context) -> Tip:
    """The tip on few labelled digits."""
    return Tip(
        id="distillation",
        section="Compression and deployment",
        order=3,
        claim="A small student gains accuracy from a large teacher's soft labels.",
        card=__doc__ or "",
        variants=(
            Variant(name="student alone", settings={"soft": False}),
            Variant(name="student with soft labels", settings={"soft": True}, recommended=True),
            Variant(name="teacher", settings={"soft": None}, exploratory=True),
        ),
        workloads=(
            Workload(
                name="digits, batch 1",
                build=build,
                metrics=(ACCURACY, LATENCY_P50, FILE_BYTES),
                pinned=True,
                turn_seconds=INFERENCE_TURN_SECONDS,
            ),
        ),
    )


def build(settings: Mapping[str, Any], context: Context) -> Work:
    """Inference of a student trained with soft labels or without, or of the teacher (None)."""
    from bench.workloads import compression, digits
    from bench.workloads.digit_models import CNN, trained
    from bench.workloads.inference import file_of, inference_work

    teacher = trained(CNN, context)
    inputs = teacher.held_out.images[:1]
    soft: bool | None = settings["soft"]
    if soft is None:
        right = digits.recognised(teacher.model, teacher.held_out)
        return inference_work(
            teacher.model,
            inputs,
            evidence=lambda: {
                "labelled_digits": len(teacher.learnt),
                **digits.accuracy_evidence(right),
            },
            readings={
                "accuracy_percent": digits.percent(right),
                "file_bytes": len(file_of(teacher.model)),
            },
        )
    seed = digits.seed_of(context)
    taught = compression.students(teacher, seed=seed, soft=soft)

    def evidence() -> dict[str, Any]:
        steps = len(taught.models) * compression.STUDYING.steps
        if taught.soft_steps != (steps if soft else 0):
            raise TreatmentNotApplied(
                f"{taught.soft_steps} of {steps} training steps had soft labels"
            )
        return {
            "seed": seed,
            "students": len(taught.models),
            "labelled_digits_a_student": compression.LABELLED,
            "training_steps": steps,
            "steps_with_soft_labels": taught.soft_steps,
            "held_out_digits": taught.right.shape[1],
            "student_accuracies_percent": [
                round(digits.percent(right), 2) for right in taught.right
            ],
            "teacher_accuracy_percent": round(digits.percent(teacher.right), 2),
        }

    return inference_work(
        taught.models[0],
        inputs,
        evidence=evidence,
        readings={
            "accuracy_percent": digits.percent(taught.right),
            "file_bytes": len(file_of(taught.models[0])),
        },
    )
