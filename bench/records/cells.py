"""What stands in a cell: values to text and back, strictly, and harmless in a spreadsheet."""

import csv
import dataclasses
import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

_FORMULA = re.compile(r"['\s]*[=+\-@\t\r\n＝＋－＠]")
"""Text that a spreadsheet would run or strip: https://owasp.org/www-community/attacks/CSV_Injection
names the characters. The apostrophes before it make the way back unambiguous."""

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Characters that move a terminal's cursor or colour its text; line ends and tabs stay."""

_LARGEST, _MOST_DIGITS = 1e60, 18
"""No run measures more, and the fourth power of a standard error must still be a number."""

_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+", re.ASCII)
_TRUTHS = {
    spelling(word): word == "true"
    for word in ("true", "false")
    for spelling in (str.lower, str.title, str.upper)
}


def to_cell(value: object) -> str:
    """``value`` as its cell holds it: None and what is not finite as nothing.

    Text that a spreadsheet would run as a formula gets an apostrophe before it.
    """
    match value:
        case None:
            return ""
        case bool():
            return str(value)
        case float():
            # numpy's floats are floats too, and their own repr is "np.float64(…)".
            return repr(float(value)) if math.isfinite(value) else ""
        case Mapping():
            return json.dumps(dict(value), ensure_ascii=False, sort_keys=True)
        case str():
            return f"'{value}" if _FORMULA.match(value) else value
        case _:
            return str(value)


def csv_line(cells: Sequence[str]) -> str:
    """One line of a CSV file with its end; cells that hold line ends or commas are quoted."""
    line = io.StringIO()
    # Before Python 3.13 the writer quotes a carriage return only where it is a line's end.
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n") + "\n"


def write_rows(path: Path, record: Any, rows: Iterable[Any]) -> None:
    """Write values of the dataclass ``record`` as a CSV file, replacing what is there at once."""
    names = [field.name for field in dataclasses.fields(record)]
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8", newline="") as file:
        file.write(csv_line(names))
        file.writelines(csv_line([to_cell(getattr(row, name)) for name in names]) for row in rows)
    partial.replace(path)


def parser(kind: Any) -> Callable[[str], Any]:
    """What turns a cell into a value of a record's field type.

    The function returned raises ValueError, with what was expected, for any other cell. A JSON
    object is checked and stays text.
    """
    options = get_args(kind)
    if NoneType in options:
        (inner,) = (option for option in options if option is not NoneType)
        parse = parser(inner)
        return lambda cell: None if cell == "" else parse(cell)
    if get_origin(kind) is Literal:
        return lambda cell: _one_of(cell, options)
    return {int: _whole, float: _number, bool: _truth, str: _text}.get(kind, _json_object)


def _text(cell: str) -> str:
    cell = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", cell)
    # The same few texts stand in each of a thousand files: kept once, they take a tenth.
    return sys.intern(cell[1:] if cell[:1] == "'" and _FORMULA.match(cell, 1) else cell)


def _one_of(cell: str, options: tuple[str, ...]) -> str:
    if cell not in options:
        raise ValueError(f"one of {', '.join(options)}")
    return sys.intern(cell)


def _whole(cell: str) -> int:
    if len(cell) > _MOST_DIGITS:
        raise ValueError(f"a whole number of at most {_MOST_DIGITS} characters")
    if _WHOLE.fullmatch(cell):
        return int(cell)
    # Other programs write the whole numbers of a column that has gaps as 2.0.
    if _NUMBER.fullmatch(cell) and float(cell).is_integer():
        return int(float(cell))
    raise ValueError(_without_comma(cell, "a whole number"))


def _number(cell: str) -> float:
    if not _NUMBER.fullmatch(cell) or not math.isfinite(number := float(cell)):
        raise ValueError(_without_comma(cell, "a finite number"))
    if abs(number) > _LARGEST:
        raise ValueError(f"a number of at most {_LARGEST:g}")
    return number


def _without_comma(cell: str, expected: str) -> str:
    return f"{expected} with a decimal point" if _DECIMAL_COMMA.fullmatch(cell) else expected


def _truth(cell: str) -> bool:
    if cell not in _TRUTHS:
        raise ValueError("True or False")
    return _TRUTHS[cell]


def _json_object(cell: str) -> str:
    try:
        content = json.loads(cell)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise ValueError("a JSON object")
    return cell
