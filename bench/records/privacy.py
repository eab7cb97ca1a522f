"""What a text says of its user, host and folders: found, and taken out of what is kept."""

import contextlib
import dataclasses
import getpass
import json
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.records import machine
from bench.records.measurements import Turn
from bench.records.run_folder import ROOT


def scrubbed(turn: Turn, own: Sequence[Path] = ()) -> Turn:
    """``turn`` without paths, names and hosts in its texts; ``own``: more paths of the user's."""
    if turn.evidence is not None:
        evidence = json.loads(json.dumps(turn.evidence, default=str))
        turn = dataclasses.replace(turn, evidence=_scrub_values(evidence, own))
    if turn.reason is not None:
        turn = dataclasses.replace(turn, reason=scrub(turn.reason, own))
    return turn


def _scrub_values(found: Any, own: Sequence[Path]) -> Any:
    """What was read from JSON, with each of its texts scrubbed."""
    match found:
        case str():
            return scrub(found, own)
        case list():
            return [_scrub_values(part, own) for part in found]
        case dict():
            return {name: _scrub_values(part, own) for name, part in found.items()}
    return found


def scrub(text: str, own: Sequence[Path] = ()) -> str:
    """``text`` without paths, names and hosts that are this user's own; ``own``: more paths."""
    for name, path in (
        *((f"<{path.name}>", path.absolute()) for path in own),
        ("<environment>", Path(sys.prefix)),
        ("<checkout>", ROOT),
        ("<cache>", machine.cache_folder()),
        ("~", Path.home()),
    ):
        # A container may have "/" for a home, which is no name.
        if path != Path(path.anchor):
            text = text.replace(str(path), name)
    for name, pattern in {**_user_and_host(), "<home>": _HOME}.items():
        text = re.sub(pattern, name, text)
    return text


_HOME = r"(?:/home/|/Users/|[A-Za-z]:\\+Users\\+)[^\s/\\'\":;,]+"
"""Anybody's home folder, which the text of an error may name."""


def names_of_this_user(text: str) -> set[str]:
    """What in ``text`` names this host, this user or a folder of theirs."""
    folders = [str(path) for path in (ROOT, Path.home()) if path != Path(path.anchor)]
    patterns = [rf"{re.escape(folder)}(?![\w-])" for folder in folders]
    return {
        match[0]
        for pattern in (*patterns, *_user_and_host().values())
        for match in re.finditer(pattern, text)
    }


def _user_and_host() -> dict[str, str]:
    """What stands for the user's and the host's name in records, and what finds these."""
    patterns = {}
    # A user id without a name, as in a container.
    with contextlib.suppress(KeyError, OSError):
        user = re.escape(getpass.getuser())
        patterns["<user>"] = rf"(?<=/){user}(?=/)|\b{user}(?=@)"
    return patterns | {"<host>": rf"\b{re.escape(socket.gethostname())}\b"}
