"""The nursery: an interpreter that has imported torch, from which arms are forked.

It answers the runner over a socket: a message with one file descriptor starts an arm that serves
it (reply: the arm's process id); ``{"wait": pid}`` is answered by the arm's exit status. Forking
takes 0.03 s where importing torch and torchvision takes 5 s.
"""

import gc
import importlib
import json
import os
import signal
import socket
import sys
import warnings
from multiprocessing.connection import Connection

from bench.engine import arm


def main(descriptor: int, preload: list[str]) -> None:
    """Import ``preload``, then start arms until the runner closes the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in preload:
        importlib.import_module(name)
    # Numpy's thread pool exists already, and handles a fork by itself.
    warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
    gc.collect()
    gc.freeze()
    runner = socket.socket(fileno=descriptor)
    while True:
        message, descriptors, _, _ = socket.recv_fds(runner, 4096, 1)
        if not message:
            return
        if descriptors:
            pid = os.fork()
            if pid == 0:
                runner.close()
                _be_an_arm(descriptors[0])
            os.close(descriptors[0])
            reply: dict[str, int] = {"pid": pid}
        else:
            _, status = os.waitpid(json.loads(message)["wait"], 0)
            reply = {"exit": os.waitstatus_to_exitcode(status)}
        runner.send(json.dumps(reply).encode())


def _be_an_arm(descriptor: int) -> None:
    code = 1
    try:
        arm.serve(Connection(descriptor))
        code = 0
    finally:
        # Skips what the nursery registered to do at its own exit.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
