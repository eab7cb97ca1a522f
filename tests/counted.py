"""A data set that writes down each sample that is made of it."""

import time
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset


class Counted(Dataset[Tensor]):
    """A thousand samples, 20 ms each; each adds a byte to the file ``log``."""

    def __init__(self, log: str) -> None:
        self.log = Path(log)

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(0.02)
        with self.log.open("a") as file:
            file.write(".")
        return torch.zeros(1)
