"""The models that are trained: a small one where there is no GPU, ResNet-50 where there is."""

import itertools
from typing import TYPE_CHECKING

from bench.workloads.work import Context

if TYPE_CHECKING:
    from torch import nn

SMALL_CNN = "small_cnn"
DEFAULT_MODELS = {"cpu": SMALL_CNN, "cuda": "resnet50"}
CLASSES = 1000


def model_name(context: Context) -> str:
    """The model that a run trains: the user's, or the default one of the device."""
    return context.model or DEFAULT_MODELS[context.device.partition(":")[0]]


def build_model(name: str) -> "nn.Module":
    """The model with random weights, for (batch, 3, size, size) images and CLASSES outputs.

    ``name`` is SMALL_CNN or a classification model of torchvision's. ValueError for another.
    """
    if name == SMALL_CNN:
        return _small_cnn()
    from torchvision import models

    return models.get_model(name, weights=None)


def _small_cnn() -> "nn.Module":
    """Four strided convolutions: a training step of 16 images takes 50 ms on two slow cores."""
    from torch import nn

    channels = (3, 24, 48, 96, 192)
    layers: list[nn.Module] = []
    for index, (inputs, outputs) in enumerate(itertools.pairwise(channels)):
        kernel, stride = (7, 4) if index == 0 else (3, 2)
        layers += [
            nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], CLASSES)
    )
