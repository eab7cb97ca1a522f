"""Starts arms as processes, talks to them, freezes them while they wait, and leaves none behind."""

import contextlib
import dataclasses
import functools
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.engine import keeper, tree
from bench.engine.arm import Call, Close, Failed, Settle
from bench.errors import UserError
from bench.records.run_folder import ROOT

PRELOAD = ("torch", "torchvision.transforms.v2", "PIL.Image", "bench.tips")
TIMEOUT_SECONDS = 120.0
TF32_OVERRIDE = "NVIDIA_TF32_OVERRIDE"
"""Decides over the switches that arms set, so they don't get to see it."""
_CLOSE_SECONDS = 5.0
_LOOK_SECONDS = 0.2


class ArmFailed(Exception):
    """An arm answered ``Failed``, died, or gave no answer in time; ``kind`` as in ``Failed``."""

    def __init__(self, reason: str, kind: str = "error") -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind = kind


@dataclasses.dataclass(kw_only=True)
class Arm:
    """A process that runs one variant. Outside ``ask`` its whole tree is frozen."""

    pid: int
    start_method: str
    log: Path
    _connection: Connection
    _wait: Callable[[], int | None]
    _freezes: bool
    members: list[int] = dataclasses.field(default_factory=list)
    """The processes of its tree when it was last frozen, the root first."""

    def introduce(self, settle: Settle) -> None:
        """Send what every arm hears first: where modules are found, and its preamble."""
        try:
            self._connection.send(sys.path)
        except OSError:
            raise ArmFailed(self._death()) from None
        self.ask(settle)

    def ask(
        self,
        message: object,
        *,
        timeout: float = TIMEOUT_SECONDS,
        while_waiting: Callable[[], None] | None = None,
    ) -> Any:
        """Let the arm run until it has answered ``message``; ArmFailed when it doesn't.

        ``while_waiting`` is called every 0.2 s.
        """
        self.tell(message)
        return self.hear(timeout=timeout, while_waiting=while_waiting)

    def tell(self, message: object) -> None:
        """Send the message and let the arm run; ArmFailed when it is dead.

        The message is in the pipe before the arm is thawed, and the arm is frozen only after its
        reply: frozen in the middle of a turn, a loader's own time-out would strike. Its children
        are thawed by the arm itself: loader workers when the clock starts, not before.
        """
        try:
            self._connection.send(message)
        except OSError:
            raise ArmFailed(self._death()) from None
        tree.thaw([self.pid])

    def hear(
        self,
        *,
        timeout: float = TIMEOUT_SECONDS,
        while_waiting: Callable[[], None] | None = None,
    ) -> Any:
        """The answer to what the arm was told, which is frozen then; as :meth:`ask`."""
        try:
            if not self._answered(timeout, while_waiting):
                tree.kill(self.pid)
                self._wait()
                raise ArmFailed(f"no answer within {timeout:.0f} s; the arm was killed")
            reply = self._connection.recv()
        except (EOFError, OSError):
            raise ArmFailed(self._death()) from None
        if isinstance(reply, Failed):
            raise ArmFailed(reply.reason, reply.kind)
        try:
            self.members = tree.freeze(self.pid) if self._freezes else tree.tree(self.pid)
        except tree.NotFrozen as error:
            tree.kill(self.pid)
            self._wait()
            raise ArmFailed(f"{error}; the arm was killed") from None
        return reply

    def tree(self) -> list[int]:
        """The processes of its tree now, the root first."""
        return tree.tree(self.pid)

    def end(self) -> None:
        """Let the work close what it opened, then kill the tree and collect its exit status."""
        with contextlib.suppress(ArmFailed):
            self.ask(Close(), timeout=_CLOSE_SECONDS)
        tree.kill(self.pid)
        self.hang_up()
        self._wait()

    def hang_up(self) -> None:
        """Close the runner's end of the connection."""
        self._connection.close()

    def _answered(self, timeout: float, while_waiting: Callable[[], None] | None) -> bool:
        if while_waiting is None:
            return self._connection.poll(timeout)
        for _ in range(math.ceil(timeout / _LOOK_SECONDS)):
            if self._connection.poll(_LOOK_SECONDS):
                return True
            while_waiting()
        return False

    def _death(self) -> str:
        tree.kill(self.pid)
        match self._wait():
            case None:
                return "the arm died"
            case code if code < 0:
                name = signal.Signals(-code).name
                hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
                return f"the arm was killed by {name}{hint}"
            case code:
                return f"the arm ended with exit code {code}{self._last_words()}"

    def _last_words(self) -> str:
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            return ""
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f": {last}" if last else ""


class Processes:
    """All processes of one run; leaving the ``with`` block ends every one of them.

    ``preload``: what the nursery imports. ``freezes=False`` lets waiting arms run on: only to
    show what freezing is for.
    """

    def __init__(self, *, preload: Sequence[str] = PRELOAD, freezes: bool = True) -> None:
        self._preload = tuple(preload)
        self._freezes = freezes
        self._token = uuid.uuid4().hex
        self._nursery: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self.living: list[Arm] = []

    def __enter__(self) -> "Processes":
        self.scratch = Path(tempfile.mkdtemp(prefix="bench-"))
        reading, self._lifeline = os.pipe()
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "bench.engine.keeper", str(reading), self._token, self.scratch],
            pass_fds=[reading],
            start_new_session=True,
            env=_environment({}),
            stdin=subprocess.DEVNULL,
        )
        os.close(reading)
        self._start_nursery()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with _without_interrupts():
            keeper.kill_all(self._token)
            os.close(self._lifeline)
            self._keeper.wait()
            if self._nursery is not None:
                self._nursery.wait()
            if self._socket is not None:
                self._socket.close()
            for arm in self.living:
                arm.hang_up()
            shutil.rmtree(self.scratch, ignore_errors=True)

    def start(
        self,
        *,
        cores: Sequence[int],
        threads: int | None,
        layout: str | None = None,
        fresh: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Arm:
        """Start an arm on ``cores`` with ``threads`` threads; ArmFailed when it doesn't come up.

        ``threads``: None leaves torch's own default, as it must be in a ``fresh`` one: that has an
        interpreter of its own, with ``environment`` set from its start. ``layout`` as in Settle.
        """
        ours, theirs = socket.socketpair()
        log = self.scratch / f"{uuid.uuid4().hex}.log"
        environment = environment or {}
        with theirs:
            pid, wait = (
                self._spawn(theirs.fileno(), environment) if fresh else self._fork(theirs.fileno())
            )
        connection = Connection(ours.detach())
        arm = Arm(
            pid=pid,
            start_method="fresh interpreter" if fresh else "fork",
            log=log,
            _connection=connection,
            _wait=functools.cache(wait),
            _freezes=self._freezes,
        )
        self.living.append(arm)
        settle = Settle(
            cores=tuple(cores),
            threads=threads,
            log=str(log),
            layout=layout,
            environment={} if fresh else environment,
        )
        try:
            arm.introduce(settle)
        except ArmFailed:
            self.end(arm)
            raise
        return arm

    def end(self, arm: Arm) -> None:
        """End one arm and its tree."""
        arm.end()
        self.living.remove(arm)

    def call(
        self,
        function: Callable[..., Any],
        *arguments: object,
        cores: Sequence[int],
        timeout: float = TIMEOUT_SECONDS,
    ) -> Any:
        """Call ``function`` in a process of its own.

        Raises the UserError that it raises, and ArmFailed when it fails otherwise or dies.
        """
        arm = self.start(cores=cores, threads=None)
        try:
            answer = arm.ask(Call(function=function, arguments=arguments), timeout=timeout)
        finally:
            self.end(arm)
        if isinstance(answer, UserError):
            raise answer
        return answer

    @property
    def nursery_pid(self) -> int:
        """The process that shares memory with the arms that were forked from it."""
        assert self._nursery is not None
        return self._nursery.pid

    def environment_of_arms(self, added: Mapping[str, str]) -> dict[str, str]:
        """Marks a process for the keeper; what a killed one leaves in TMPDIR goes with the run."""
        own = {keeper.TOKEN: self._token, "TMPDIR": str(self.scratch)}
        return _environment({**added, **own})

    def _start_nursery(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._nursery = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "bench.engine.nursery",
                    str(theirs.fileno()),
                    *self._preload,
                ],
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=self.environment_of_arms({}),
                stdin=subprocess.DEVNULL,
            )

    def _fork(self, descriptor: int) -> tuple[int, Callable[[], int | None]]:
        try:
            reply = self._ask_nursery({}, [descriptor])
        except OSError:
            # The nursery was killed, by the system when memory ran out perhaps. Living arms go on.
            self._start_nursery()
            try:
                reply = self._ask_nursery({}, [descriptor])
            except OSError as error:
                raise ArmFailed(
                    f"no process can be started: the one that imports {', '.join(self._preload)} "
                    "for all ends by itself"
                ) from error
        pid, nursery = reply["pid"], self._nursery

        def wait() -> int | None:
            if nursery is not self._nursery:
                return None
            try:
                return self._ask_nursery({"wait": pid}, [])["exit"]
            except OSError:
                return None

        return pid, wait

    def _ask_nursery(self, message: Mapping[str, int], descriptors: list[int]) -> dict[str, int]:
        assert self._socket is not None
        socket.send_fds(self._socket, [json.dumps(message).encode()], descriptors)
        reply = self._socket.recv(4096)
        if not reply:
            raise ConnectionResetError("the nursery ended")
        answer: dict[str, int] = json.loads(reply)
        return answer

    def _spawn(
        self, descriptor: int, environment: Mapping[str, str]
    ) -> tuple[int, Callable[[], int | None]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.engine.arm", str(descriptor)],
            pass_fds=[descriptor],
            start_new_session=True,
            env=self.environment_of_arms(environment),
            stdin=subprocess.DEVNULL,
        )
        return process.pid, process.wait


def _environment(added: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with ``added``; ``bench`` can be imported from anywhere in it."""
    paths = [added.get("PYTHONPATH", ""), str(ROOT), os.environ.get("PYTHONPATH", "")]
    own = {name: value for name, value in os.environ.items() if name != TF32_OVERRIDE}
    return {
        **own,
        **added,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }


class _without_interrupts:  # noqa: N801 - reads as a statement
    """While arms are being ended, a second Ctrl-C or SIGTERM must not leave frozen ones behind."""

    def __enter__(self) -> None:
        self._handlers = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, signal.SIG_IGN)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
