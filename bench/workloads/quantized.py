"""INT8 models, made with ``torch.ao.quantization``.

Every variant imports this module, FP32 too, so that their memory differs by the models alone.
"""

import copy
import itertools
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.quantization import (
    QuantWrapper,
    convert,
    fuse_modules,
    get_default_qconfig,
    prepare,
    quantize_dynamic,
)

CALIBRATION_DIGITS = 100


def static_int8(model: nn.Module, calibration: Tensor) -> nn.Module:
    """``model`` with INT8 weights and activations, their ranges seen on ``calibration``."""
    with warnings.catch_warnings(), torch.no_grad():
        # The tip's card says that it is deprecated, and what replaces it.
        warnings.simplefilter("ignore")
        observed = QuantWrapper(copy.deepcopy(model))
        fuse_modules(observed, _fusible(observed), inplace=True)
        observed.qconfig = get_default_qconfig(torch.backends.quantized.engine)
        prepare(observed, inplace=True)
        observed(calibration)
        return convert(observed, inplace=True)


def _fusible(model: nn.Module) -> list[list[str]]:
    """The names of layers that are followed by a ReLU, each with that of its ReLU."""
    return [
        [name, following]
        for (name, layer), (following, after) in itertools.pairwise(model.named_modules())
        if isinstance(layer, nn.Conv2d | nn.Linear) and isinstance(after, nn.ReLU)
    ]


def dynamic_int8(model: nn.Module) -> nn.Module:
    """``model`` with INT8 weights in its Linear layers; activations follow at each call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


def int8_evidence(model: nn.Module, original: nn.Module) -> dict[str, Any]:
    """How much of ``original`` has INT8 weights in ``model``, as counted in its modules."""
    weights = [
        weight
        for module in model.modules()
        # A quantised module unpacks its weight on request; others hold a tensor, or none.
        if callable(unpack := getattr(module, "weight", None))
        and (weight := unpack()).dtype == torch.qint8
    ]
    layers = [module for module in original.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    parameters = sum(parameter.numel() for parameter in original.parameters())
    return {
        "int8_layers": len(weights),
        "layers": len(layers),
        "linear_layers": sum(isinstance(layer, nn.Linear) for layer in layers),
        "int8_share_of_parameters": sum(weight.numel() for weight in weights) / parameters,
        "parameters": parameters,
    }
