"""Which device the training workloads run on, seen by using it. Called in a process of its own."""

from typing import Any


def probe(wanted: str | None = None) -> dict[str, Any]:
    """What torch says of this machine: ``device`` is CUDA's only when a kernel ran there.

    ``wanted``: "cpu", "cuda" or one of several GPUs ("cuda:1"); None for CUDA where it works.
    ``cuda_reason`` says why CUDA cannot be used, and is None where it can. ``gpu_uuid`` finds the
    same GPU in NVML; it names the machine, so it must not be published. ``default_threads`` is
    what torch chose, as long as nobody has set a number in this process.
    """
    import torch

    found: dict[str, Any] = {
        "device": "cpu",
        "cuda_version": torch.version.cuda,
        "cudnn_version": None,
        "gpu_model": None,
        "gpu_count": 0,
        "gpu_memory_bytes": None,
        "gpu_capability": None,
        "cuda_reason": None,
        "default_threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
    if wanted == "cpu":
        return found | {"cuda_reason": "CUDA was left out: the run's device is cpu"}
    try:
        device = torch.device(wanted or "cuda")
        if device.type != "cuda":
            raise RuntimeError(f"{wanted} is neither cpu nor a device of CUDA's")
        if torch.version.cuda is None:
            raise RuntimeError("this torch is built without CUDA")
        torch.cuda.init()
        ones = torch.ones(64, 64, device=device)
        if (ones @ ones).sum().item() != 64**3:
            raise RuntimeError("a matrix product on the GPU came out wrong")
    except Exception as error:
        first_sentence = str(error).strip().split("\n")[0].split(". ")[0]
        found["cuda_reason"] = f"CUDA cannot be used: {first_sentence}"
        return found
    properties = torch.cuda.get_device_properties(device)
    return found | {
        "device": str(device),
        "cudnn_version": torch.backends.cudnn.version(),
        "gpu_model": properties.name,
        "gpu_uuid": str(properties.uuid),
        "gpu_count": torch.cuda.device_count(),
        "gpu_memory_bytes": properties.total_memory,
        "gpu_capability": f"{properties.major}.{properties.minor}",
    }
