"""Reading CSV files that other people send: right, or refused with file, line, column and fix.

Columns may stand in any order, and unknown ones are passed over. A byte-order mark, CRLF and
gzip (whatever the file's name) are read. Nothing is guessed.
"""

import csv
import dataclasses
import gzip
import io
import reprlib
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from bench.errors import UserError
from bench.records.cells import parser

_GZIP = b"\x1f\x8b"
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_AS_WRITTEN = "Take the file as the run wrote it."
_MEND = f"Mend that cell. Or: {_AS_WRITTEN}"


def read_rows(
    path: Path,
    record: Any,
    *,
    schema_version: int,
    optional: Collection[str],
    is_growing: bool = False,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each row's line number and its values by the field names of the dataclass ``record``.

    Columns in ``optional`` may be missing and are then left out of the values. ``is_growing``: a
    last row that a killed run left unfinished is dropped; elsewhere it is an error. Raises
    UserError.
    """
    rows = list(_split(path, _content(path, is_growing=is_growing)))
    if not rows:
        raise UserError(f"{path} is empty.", _AS_WRITTEN)
    (_, names), *rows = rows
    _check_names(path, names)
    _check_rows(path, names, rows, schema_version)
    kinds = {field.name: field.type for field in dataclasses.fields(record)}
    missing = [name for name in kinds if name not in names and name not in optional]
    if missing:
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" * (len(missing) > 5))
        raise UserError(f"{path}, line 1: these columns are missing: {shown}.", _AS_WRITTEN)
    columns = [
        (place, name, parser(kinds[name])) for place, name in enumerate(names) if name in kinds
    ]
    try:
        values = [
            _column([cells[place] for _, cells in rows], parse) for place, _, parse in columns
        ]
    except ValueError:
        _refuse_first(path, rows, columns)
        raise
    known = [name for _, name, _ in columns]
    for (line, _), row in zip(rows, zip(*values, strict=True), strict=True):
        yield line, dict(zip(known, row, strict=True))


def refuse(path: Path, line: int, column: str, found: object, expected: str) -> NoReturn:
    """Raise the UserError for one cell."""
    shown = "nothing" if found in ("", None) else reprlib.repr(found)
    raise UserError(
        f"{path}, line {line}, column {column}: found {shown}, expected {expected}.", _MEND
    )


def finished(content: bytes) -> bytes:
    """``content`` without a last row that has no end, as a killed run can leave one.

    A line end inside a quoted cell ends no row: there the number of quotes before it is odd.
    """
    end = content.rfind(b"\n") + 1
    while end and content.count(b'"', 0, end) % 2:
        end = content.rfind(b"\n", 0, end - 1) + 1
    return content[:end]


def _column(cells: Sequence[str], parse: Callable[[str], Any]) -> list[Any]:
    """The values of one column; most hold few different ones, each parsed once."""
    values = {cell: parse(cell) for cell in set(cells)}
    return [values[cell] for cell in cells]


def _refuse_first(
    path: Path,
    rows: Sequence[tuple[int, list[str]]],
    columns: Sequence[tuple[int, str, Callable[[str], Any]]],
) -> None:
    """Raise the UserError for the first cell that cannot be parsed."""
    for line, cells in rows:
        for place, name, parse in columns:
            try:
                parse(cells[place])
            except ValueError as error:
                refuse(path, line, name, cells[place], str(error))


def _content(path: Path, *, is_growing: bool) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}.", "Give a file that you may read."
        ) from error
    if content.startswith(_GZIP):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(
                f"{path} is a broken gzip file ({error}).", "Copy or download it again."
            ) from error
    if b"\0" in content:
        line = content.count(b"\n", 0, content.index(b"\0")) + 1
        raise UserError(
            f"{path}, line {line}: found a zero byte, expected text in UTF-8.",
            f"It may be a spreadsheet's own format or UTF-16. {_AS_WRITTEN}",
        )
    if is_growing:
        content = finished(content)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}, line {line}: found the byte 0x{content[error.start]:02x}, which is not "
            "UTF-8, expected text in UTF-8.",
            f"Save it as UTF-8. Or: {_AS_WRITTEN}",
        ) from error
    if text.strip() and not text.endswith(("\n", "\r")):
        line = len(text.splitlines())
        raise UserError(
            f"{path}, line {line}: the last line has no end, so the file may be cut short.",
            "Copy it again. If you know that it is whole, put a line end after its last line.",
        )
    return text


def _split(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """The line on which each row begins, and its cells; empty lines hold no row."""
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    try:
        for cells in reader:
            if cells:
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path}, line {line}: this row cannot be split into cells ({error}).",
            f"A quote is missing, or the file is cut short. {_AS_WRITTEN}",
        ) from error


def _check_names(path: Path, names: Sequence[str]) -> None:
    if len(names) == 1:
        for mark, word in _SEPARATORS.items():
            if mark in names[0]:
                raise UserError(
                    f"{path}, line 1: the columns are separated by {word}, expected commas.",
                    f"Export it with commas and decimal points. Or: {_AS_WRITTEN}",
                )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(
            f"{path}, line 1: the column {twice[0]} stands there more than once.", _AS_WRITTEN
        )
    if "schema_version" not in names:
        raise UserError(
            f"{path}, line 1: there is no column schema_version, so no run wrote this file.",
            f"Give a file that a run left. {_AS_WRITTEN}",
        )


def _check_rows(
    path: Path, names: Sequence[str], rows: Sequence[tuple[int, list[str]]], schema_version: int
) -> None:
    """What must hold before a cell is looked at; a newer schema first, it may have any shape."""
    place = names.index("schema_version")
    for line, cells in rows:
        if "schema_version" in cells:
            raise UserError(
                f"{path}, line {line}: found a second header, expected a row.",
                "Two files were put together: give each by itself, or remove that line if all "
                "columns are in the same order.",
            )
        version = cells[place] if place < len(cells) else ""
        if version.isdecimal() and int(version) > schema_version:
            raise UserError(
                f"{path}, line {line}, column schema_version: found {version}, "
                f"this suite reads up to {schema_version}.",
                "Read it with the version of the suite that wrote it, or a newer one.",
            )
        if version != str(schema_version) and len(cells) == len(names):
            refuse(path, line, "schema_version", version, str(schema_version))
    last = rows[-1][0] if rows else 0
    for line, cells in rows:
        if len(cells) == len(names):
            continue
        found, fix = (
            f"found {len(cells)} cells, expected {len(names)} as in the header",
            _AS_WRITTEN,
        )
        if len(cells) > len(names):
            fix = f"A decimal comma splits a number in two: write a point. Or: {_AS_WRITTEN}"
        elif line == last:
            found, fix = f"{found}: the file may be cut short", f"Copy it again. {_AS_WRITTEN}"
        raise UserError(f"{path}, line {line}: {found}.", fix)
