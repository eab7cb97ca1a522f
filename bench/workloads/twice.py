"""A data set of which some samples are made twice: a slow-down whose size is known exactly."""

from torch.utils.data import Dataset

from bench.workloads.loaders import JpegFiles, Sample

PASS = 20
"""Items a pass: each pass does one of them (5 %) or two (10 %) twice, in turn another one."""


def is_done_twice(index: int, every: int) -> bool:
    """Whether item ``index`` is done twice; over ``PASS`` passes every item is, equally often.

    From pass to pass it is one 7 places further back, so that each loader worker soon has its turn.
    """
    return every > 0 and (index + 7 * (index // PASS)) % every == 0


class TwiceEvery(Dataset[Sample]):
    """``files`` with every ``every``-th sample read, decoded and transformed twice; 0: none."""

    def __init__(self, files: JpegFiles, every: int) -> None:
        self.files = files
        self.every = every

    def __getitem__(self, position: int) -> Sample:
        """The sample at ``position`` of the endless walk."""
        if is_done_twice(position, self.every):
            self.files[position]
        return self.files[position]
