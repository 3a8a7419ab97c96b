"""Tables from files: delimiter, decimal sign and encoding are found, or given; trouble is said in one sentence."""

import csv
import gzip
import io
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from natvi.formula.frames import as_frame

DELIMITERS = (",", ";", "\t", "|")
NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
PARQUET, ARROW = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")
SAMPLE = 1 << 18  # bytes that are looked at
NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
COMMA_NUMBER = re.compile(r"\s*[-+]?\d+,\d+\s*")
GROUPED = re.compile(r"\s*[-+]?(\d{1,3}([.,' \u00a0]\d{3})+([.,]\d+)?|\d+,\d+)\s*")  # 1.234,5 or 12 345
UNEVEN = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")  # what pandas says
MOSTLY = 0.5  # up to this share of texts, a column is one of numbers with something else in it


class Reading(NamedTuple):
    """How a text file is read; None is to be found."""

    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    missing: tuple[str, ...] = ()


def read_table(path: Path, how: Reading = Reading()) -> pd.DataFrame:  # noqa: B008 (a constant)
    """Read a CSV, Parquet or Arrow file.

    Raises:
        OSError: If there is no such file.
        ValueError: If it is not a table, with what to do.
    """
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}. Give the path of a CSV or Parquet file.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory. Give the path of a CSV or Parquet file in it.")
    name = path.name.lower()
    try:
        if name.endswith(PARQUET + ARROW):
            return _read_binary(path, "parquet" if name.endswith(PARQUET) else "ipc")
        return _read_text(path, how)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeError, csv.Error, OSError) as error:
        if isinstance(error, PermissionError):
            raise
        uneven = UNEVEN.search(str(error))
        why = (
            f"line {uneven[2]} has {uneven[3]} values, those before it {uneven[1]}"
            if uneven
            else str(error).strip().rstrip(".")
        )
        raise ValueError(f"{path} cannot be read as a table: {why}. Give a CSV, TSV or Parquet file.") from error


def _read_binary(path: Path, kind: str) -> pd.DataFrame:
    """Read a file of columns with polars, or with pyarrow where that is there."""
    try:
        import polars
    except ImportError:
        polars = None
    if polars is None:
        try:
            return pd.read_parquet(path) if kind == "parquet" else pd.read_feather(path)
        except ImportError as error:
            raise ImportError(
                f"{path} needs a library that reads it: pip install 'natvi[tables]', or save the table as CSV."
            ) from error
    try:
        frame = polars.read_parquet(path) if kind == "parquet" else polars.read_ipc(path)
    except polars.exceptions.PolarsError as error:
        raise ValueError(f"{path} cannot be read as a {kind} file: {error}.") from error
    return as_frame(frame)


def _read_text(path: Path, how: Reading) -> pd.DataFrame:
    lines, found = _look(path, how)
    _check_header(path, next(csv.reader(lines, delimiter=str(found.delimiter))))
    frame = pd.read_csv(
        path,
        sep=found.delimiter,
        decimal=str(found.decimal),
        encoding=found.encoding,
        na_values=list(how.missing),
        low_memory=False,
    )
    frame.columns = [str(column).strip() for column in frame.columns]
    return frame


def write_like(frame: pd.DataFrame, path: Path, how: Reading) -> bytes:
    """Return a table as text with the delimiter, decimal sign and encoding of the file at `path`."""
    if path.name.lower().endswith(PARQUET + ARROW):
        return frame.to_csv(index=False).encode()
    _, found = _look(path, how)
    text = frame.to_csv(index=False, sep=str(found.delimiter), decimal=str(found.decimal))
    try:
        return text.encode(str(found.encoding))
    except UnicodeEncodeError:  # a sign that the file's own encoding does not have
        return text.encode()


def _look(path: Path, how: Reading) -> tuple[list[str], Reading]:
    """Return the first lines of a text file, and how it is read."""
    start = _beginning(path)
    if not start.strip():
        raise pd.errors.EmptyDataError("it is empty")
    encoding = how.encoding or _encoding(start)
    try:
        text = start.decode(encoding, errors="ignore")
    except LookupError as error:
        raise ValueError(f"there is no encoding {encoding!r}. Common ones are utf-8, cp1252 and latin-1.") from error
    if start.startswith(b"PK\x03\x04") or path.name.lower().endswith(".xls"):
        raise pd.errors.ParserError("it is a workbook: save the sheet as CSV")
    if start.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        raise pd.errors.ParserError("it is a web page: was the download refused?")
    if "\x00" in text:
        raise pd.errors.ParserError("it holds bytes that are no text")
    lines = text.splitlines()[:200]
    lines = lines[:-1] if len(start) >= SAMPLE and len(lines) > 1 else lines
    delimiter = _delimiter_word(how.delimiter) or find_delimiter(lines)
    return lines, Reading(delimiter, how.decimal or find_decimal(lines, delimiter), encoding, how.missing)


def _beginning(path: Path) -> bytes:
    opened = gzip.open(path, "rb") if path.name.lower().endswith(".gz") else path.open("rb")
    with opened as file:
        return file.read(SAMPLE)


def _encoding(start: bytes) -> str:
    """Tell UTF-8, with a mark or without, from UTF-16 and from the usual Western encoding of Windows."""
    if start.startswith(b"\xef\xbb\xbf"):
        return "utf-8-sig"
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    try:
        start[: len(start) - 4 if len(start) >= SAMPLE else None].decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _delimiter_word(given: str | None) -> str | None:
    word = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "space": " "}.get(given or "", given)
    if word is not None and len(word) != 1:
        raise ValueError(f"--delimiter must be one character, or tab, comma, semicolon, bar; got {given!r}.")
    return word


def find_delimiter(lines: list[str]) -> str:
    """Return the sign that cuts most lines into as many parts as the header, and that into most.

    Example:
        >>> find_delimiter(["a;b", "1,5;2", "3;4,25"])
        ';'
    """
    best, score = ",", 0.0
    for sign in DELIMITERS:
        widths = [len(row) for row in csv.reader(io.StringIO("\n".join(lines)), delimiter=sign) if row]
        if not widths or widths[0] < 2:
            continue
        alike = np.mean([width == widths[0] for width in widths])
        if alike * widths[0] > score:
            best, score = sign, float(alike * widths[0])
    return best


def find_decimal(lines: list[str], delimiter: str) -> str:
    """Return "," where numbers are written with a comma and none with a point.

    Example:
        >>> find_decimal(["a;b", "1,5;2"], ";"), find_decimal(["a;b", "1.5;2"], ";")
        (',', '.')
    """
    if delimiter == ",":
        return "."
    cells = [cell for row in csv.reader(lines[1:], delimiter=delimiter) for cell in row]
    commas = sum(COMMA_NUMBER.fullmatch(cell) is not None for cell in cells)
    points = sum("." in cell and NUMBER.fullmatch(cell) is not None for cell in cells)
    return "," if commas > points else "."


def _check_header(path: Path, header: list[str]) -> None:
    names = [name.strip() for name in header]
    twice = [name for name, count in Counter(names).items() if count > 1 and name]
    if twice:
        raise ValueError(
            f"the header of {path} names {twice[0]!r} twice. Rename one of the columns, so that formulas can tell them "
            "apart."
        )
    if len(names) > 1 and all(NUMBER.fullmatch(name) for name in names):
        raise ValueError(f"the first line of {path} holds numbers only. Put the names of the columns there.")


def check_mixed(frame: pd.DataFrame, formula: str) -> None:
    """Refuse a column of the formula that holds numbers with a few texts among them: it would become a factor.

    So would numbers with signs between thousands, or with commas that were not taken for decimal ones.
    """
    without_groups = re.sub(r"\|[^)]*\)", ")", formula)  # codes of groups may look like anything
    for name in frame.columns:
        column = pd.Series(frame[name])
        if pd.api.types.is_numeric_dtype(column) or not re.search(rf"(?<!\w){re.escape(str(name))}(?!\w)", formula):
            continue
        _check_grouped(name, column, without_groups)
        texts = [(at + 1, str(value)) for at, value in enumerate(column) if not pd.isna(value)]
        wrong = [(at, text) for at, text in texts if NUMBER.fullmatch(text) is None]
        if texts and 0 < len(wrong) <= MOSTLY * len(texts):
            at, text = wrong[0]
            few = f"{len(wrong):,} text{'s' * (len(wrong) > 1)}"
            raise ValueError(
                f"the column {name!r} holds {len(texts) - len(wrong):,} numbers and {few}, the first {text!r} in data "
                f"row {at:,}. If that means missing, give --na {text!r}; if numbers have a decimal comma, give "
                "--decimal ','."
            )


def _check_grouped(name: object, column: pd.Series, formula: str) -> None:
    known = [str(value) for value in column.dropna().unique()]
    odd = [text for text in known if GROUPED.fullmatch(text) and not NUMBER.fullmatch(text)]
    if odd and re.search(rf"(?<!\w){re.escape(str(name))}(?!\w)", formula):
        if len(odd) + sum(NUMBER.fullmatch(text) is not None for text in known) > MOSTLY * len(known):
            raise ValueError(
                f"the column {name!r} holds numbers written like {odd[0]!r}. Write them without signs between "
                "thousands; if the comma is the decimal sign, give --decimal ','."
            )


def words_about(path: Path, how: Reading, frame: pd.DataFrame, formula: str) -> str:
    """Return how a file might have been meant where a column is missing: a wrong delimiter leaves one wide column."""
    if len(frame.columns) == 1 and (how.delimiter is not None or path.suffix.lower() not in PARQUET + ARROW):
        cure = "is --delimiter right?" if how.delimiter else "give the sign between columns as --delimiter."
        return f" {path} was cut into one column only: {cure}"
    return ""
