"""ServeGen client pools: how each client of a service sends, window by window.

A pool is not a trace: it says at which rate and how unevenly each client sends in every ten
minutes, and how long its prompts and outputs are in every six hours. Requests are drawn from it.

A pool is a folder of ``chunk-N-trace.csv`` and ``chunk-N-dataset.json``, one pair per client, or a
tar (gz) of such folders. The CSV has no header: start of the window in seconds, requests per
second, coefficient of variation of the gaps, ``Gamma`` or ``Weibull``, shape and scale; an idle
window is ``t,0,0,,0,0``. The JSON has the window's start, the name of a length (``input_tokens``,
``output_tokens``, ``text_tokens``, ...) and its distribution as text, a Python dict of value and
probability; ``{}`` where nothing was sent. It is parsed as a literal, never run.

Source: https://github.com/alibaba/ServeGen, data (Apache-2.0).
"""

from __future__ import annotations

import ast
import csv
import json
import math
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import FloatArray

_FILE = re.compile(r"chunk-(\d+)-(trace\.csv|dataset\.json)")
_FAMILIES = ("", "Gamma", "Weibull")
_SUM_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class LengthPdf:
    """A distribution of a length.

    Attributes:
        values: float64, rising.
        probabilities: float64, above 0; their sum is 1 within 1e-6.
    """

    values: FloatArray
    probabilities: FloatArray

    @property
    def mean(self) -> float:
        """Mean of the distribution."""
        return float(self.values @ self.probabilities / self.probabilities.sum())


@dataclass(frozen=True, slots=True, eq=False)
class Client:
    """How one client sends.

    Attributes:
        number: of its files, N in ``chunk-N-trace.csv``.
        window_start_s: float64, rising; begin of each window.
        rate_rps: float64 per window, requests per second; 0 where idle.
        gap_cv: float64 per window, coefficient of variation of the gaps.
        gap_family: per window "Gamma" or "Weibull"; "" where idle, or where none was fitted.
        gap_shape: float64 per window, of that distribution.
        gap_scale: float64 per window, of that distribution, seconds.
        length_start_s: float64, rising; begin of each window of lengths.
        lengths: per window of lengths, distributions by the file's name of the length; a name
            is left out where nothing was sent.
    """

    number: int
    window_start_s: FloatArray
    rate_rps: FloatArray
    gap_cv: FloatArray
    gap_family: tuple[str, ...]
    gap_shape: FloatArray
    gap_scale: FloatArray
    length_start_s: FloatArray
    lengths: tuple[Mapping[str, LengthPdf], ...]


@dataclass(frozen=True, slots=True, eq=False)
class ClientPool:
    """All clients of one service.

    Attributes:
        name: folder of the files, such as ``reason/deepseek-r1``.
        window_s: length of the windows of rates.
        clients: by rising number.
    """

    name: str
    window_s: float
    clients: tuple[Client, ...]

    def mean_rate_rps(self) -> float:
        """Mean of all clients' requests per second over the recording."""
        return float(sum(client.rate_rps.mean() for client in self.clients))


def load_client_pool(path: str | os.PathLike[str], pool: str | None = None) -> ClientPool:
    """Read a pool.

    Args:
        path: a folder of the files, or a tar of such folders.
        pool: which folder of the tar; None for the only one.

    Raises:
        InputError: one line that names the file and what is wrong.
    """
    path = Path(path)
    pools: dict[str, dict[int, dict[str, bytes]]] = {}
    for name, data in _files(path):
        found = _FILE.fullmatch(PurePosixPath(name).name)
        if found:
            folder = str(PurePosixPath(name).parent)
            pools.setdefault(folder, {}).setdefault(int(found[1]), {})[found[2]] = data
    if not pools:
        raise InputError(f"{path}: holds no chunk-N-trace.csv; give a ServeGen pool")
    if pool is None and len(pools) > 1:
        raise InputError(f"{path}: holds {', '.join(sorted(pools))}; name one with pool=")
    chosen = next(iter(pools)) if pool is None else pool
    if chosen not in pools:
        raise InputError(f"{path}: has no pool {pool!r}; it has {', '.join(sorted(pools))}")
    clients = []
    for number, files in sorted(pools[chosen].items()):
        where = f"{path}: {chosen}/chunk-{number}"
        if len(files) < 2:
            raise InputError(f"{where}-{next(iter(files))}: lacks its other file of the pair")
        clients.append(_client(where, number, files))
    steps = {float(step) for client in clients for step in np.diff(client.window_start_s)}
    if len(steps) != 1:
        raise InputError(f"{path}: {chosen}: windows are {sorted(steps)} s long; must be as one")
    return ClientPool(chosen if path.is_file() else path.name, steps.pop(), tuple(clients))


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        if path.is_dir():
            for file in sorted(path.iterdir()):
                if _FILE.fullmatch(file.name):
                    yield file.name, file.read_bytes()
            return
        with tarfile.open(path) as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isfile() else None
                if stream is not None:
                    yield member.name, stream.read()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; give a ServeGen pool") from None
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InputError(f"{path}: is no readable tar or folder ({error})") from None


def _client(where: str, number: int, files: Mapping[str, bytes]) -> Client:
    windows, families = _windows(f"{where}-trace.csv", files["trace.csv"])
    starts, lengths = _lengths(f"{where}-dataset.json", files["dataset.json"])
    return Client(
        number=number,
        window_start_s=windows[0],
        rate_rps=windows[1],
        gap_cv=windows[2],
        gap_family=families,
        gap_shape=windows[3],
        gap_scale=windows[4],
        length_start_s=starts,
        lengths=lengths,
    )


def _windows(where: str, data: bytes) -> tuple[tuple[FloatArray, ...], tuple[str, ...]]:
    rows, families = [], []
    for line, row in enumerate(csv.reader(data.decode(errors="replace").splitlines()), 1):
        if not row:
            continue
        try:
            start, rate, cv, family, shape, scale = row
            values = [float(start), float(rate), float(cv), float(shape), float(scale)]
        except ValueError:
            right = "t,rate,cv,Gamma|Weibull|,shape,scale"
            raise InputError(
                f"{where}: row {line}: is {','.join(row)!r}; must be {right}"
            ) from None
        if not all(0 <= value < math.inf for value in values):
            raise InputError(f"{where}: row {line}: numbers must be finite and at least 0")
        if family not in _FAMILIES:
            raise InputError(f"{where}: row {line}: {family!r}; must be Gamma, Weibull or empty")
        if (values[1] > 0) != bool(family) or (family and min(values[3:]) <= 0):
            raise InputError(
                f"{where}: row {line}: a window with requests needs Gamma or Weibull, a shape and "
                "a scale; an idle one has none"
            )
        rows.append(values)
        families.append(family)
    table = np.array(rows, dtype=np.float64).reshape(-1, 5)
    if len(table) < 2 or bool((np.diff(table[:, 0]) <= 0).any()):
        raise InputError(f"{where}: needs two windows at least, of rising start")
    return tuple(np.ascontiguousarray(column) for column in table.T), tuple(families)


def _lengths(where: str, data: bytes) -> tuple[FloatArray, tuple[Mapping[str, LengthPdf], ...]]:
    try:
        windows: Any = json.loads(data)
        starts = [float(start) for start in windows]
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{where}: is not JSON of windows by their start in seconds") from None
    if not isinstance(windows, dict) or starts != sorted(set(starts)):
        raise InputError(f"{where}: must be an object of windows, of rising start in seconds")
    found = []
    for start, window in windows.items():
        if not isinstance(window, dict):
            raise InputError(f"{where}: window {start}: must be an object of distributions")
        parsed = {name: _pdf(f"{where}: window {start}: {name}", window[name]) for name in window}
        found.append({name: pdf for name, pdf in parsed.items() if pdf is not None})
    return np.array(starts, dtype=np.float64), tuple(found)


def _pdf(where: str, text: Any) -> LengthPdf | None:
    right = "must be a dict of numbers and probabilities as text"
    try:
        weights = ast.literal_eval(text)
        items = sorted((float(value), float(weight)) for value, weight in weights.items())
    except (ValueError, TypeError, SyntaxError, AttributeError, MemoryError, RecursionError):
        raise InputError(f"{where}: {right}") from None
    if not items:
        return None
    values, probabilities = np.array(items, dtype=np.float64).T
    if not (np.isfinite(values).all() and (values >= 0).all() and (probabilities >= 0).all()):
        raise InputError(f"{where}: {right}, none below 0")
    total = float(probabilities.sum())
    if not abs(total - 1) <= _SUM_TOLERANCE:
        raise InputError(f"{where}: probabilities add up to {total:.6g}; must be 1")
    used = probabilities > 0
    return LengthPdf(values[used], probabilities[used])
