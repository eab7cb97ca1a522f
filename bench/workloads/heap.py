"""How memory lies in a process that is about to work: settled, and drawn anew a replicate.

Both have effects of the size of a tip's. Seen on one machine: a process that still returned its
large blocks decoded a fifth slower, and a pair of programs that differed only in what they did
before their loop decoded a few percent apart, also when measured again. (T. Mytkowicz and others,
"Producing wrong data without doing anything obviously wrong!", ASPLOS 2009; C. Curtsinger and
E. Berger, "Stabilizer", ASPLOS 2013.)
"""

import random

LARGEST_REUSED_BYTES = 31 * 2**20
"""glibc goes up to 32 MiB, what it adds to a block included."""
BLOCKS = 32
SMALLEST_BITS, LARGEST_BITS = 9, 18

kept: list[bytearray] = []
"""What lies between the holes."""


def settle() -> None:
    """Let malloc keep large freed blocks from now on, as in a process that has run for long.

    Until a process has freed a large block once, glibc returns each of them to the system and
    faults it in again the next time: 144 page faults an image. What ends that is any import that
    happens to free one, so arms would differ by luck.
    """
    bytes(LARGEST_REUSED_BYTES)


def shuffle(seed: str) -> None:
    """Leave the heap with holes and blocks of random sizes, the same ones for the same ``seed``.

    Where the buffers of a work lie decides which of them meet in a cache. With another layout in
    every replicate that luck is in the interval; with always the same it is in the effect.
    """
    order = random.Random(seed)
    blocks = [
        bytearray(round(2 ** order.uniform(SMALLEST_BITS, LARGEST_BITS))) for _ in range(BLOCKS)
    ]
    kept.extend(order.sample(blocks, BLOCKS // 2))
