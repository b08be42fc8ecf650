"""Reads a layer profile: the time of each layer of a dense decoder by what it computes.

The format is LLMServingSim's (github.com/casys-kaist/LLMServingSim, ``profiler/``): a folder with
``meta.yaml``, ``dense.csv`` (layer, tokens, time_us), ``attention.csv`` (prefill_chunk,
kv_prefill, n_decode, kv_decode, time_us; one prefill chunk and like decodes) and
``per_sequence.csv`` (layer, sequences, time_us).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from fleetsim.calibration.step_table import Floats
from fleetsim.traces.errors import InputError

PER_LAYER = {
    "layernorm": 2,
    "qkv_proj": 1,
    "rotary_emb": 1,
    "o_proj": 1,
    "gate_up_proj": 1,
    "act_fn": 1,
    "down_proj": 1,
}
"""How often one decoder layer runs each (a norm before attention, one before the MLP)."""

OPTIONAL_PER_LAYER = {"qk_norm": 1}
ONCE = ("embedding", "final_layernorm")
PER_SEQUENCE = ("lm_head", "sampler")

_ATTENTION = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")
_SLOWEST_US = 10e6
"""One layer of one step does not take ten seconds; times in another unit do."""


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Microseconds of one layer by tokens or sequences, from few to many."""

    counts: Floats
    time_us: Floats

    def at(self, counts: Floats) -> Floats:
        """Linear between measured counts, constant outside them."""
        return np.interp(counts, self.counts, self.time_us)


@dataclass(frozen=True, slots=True, eq=False)
class LayerTables:
    """A layer profile, checked.

    Attributes:
        path: the folder.
        model, gpu, engine_version: as ``meta.yaml`` names them.
        dense: each dense layer's time by tokens.
        per_sequence: each head layer's time by sequences.
        attention: columns prefill_chunk, kv_prefill, n_decode, kv_decode, time_us.
    """

    path: Path
    model: str
    gpu: str
    engine_version: str
    dense: Mapping[str, Curve]
    per_sequence: Mapping[str, Curve]
    attention: Mapping[str, Floats]

    @property
    def max_tokens(self) -> int:
        """The largest token count at which every dense layer was measured."""
        return int(min(curve.counts[-1] for curve in self.dense.values()))

    @property
    def max_sequences(self) -> int:
        """The largest batch at which the head was measured."""
        return int(min(curve.counts[-1] for curve in self.per_sequence.values()))


def read_layer_tables(folder: Path) -> LayerTables:
    """Reads and checks the four files of a layer profile.

    Raises:
        InputError: a file or column is missing, a time is not a positive number of microseconds,
            a layer is unknown (how often it runs is not) or missing, or attention lacks decodes,
            prefills or more than one batch size.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: is not a folder; give the layer profile's folder")
    meta = _meta(folder / "meta.yaml")
    required = {*PER_LAYER, *ONCE}
    dense = _curves(folder / "dense.csv", "tokens", required, set(OPTIONAL_PER_LAYER))
    per_sequence = _curves(folder / "per_sequence.csv", "sequences", set(PER_SEQUENCE), set())
    return LayerTables(
        path=folder,
        model=str(meta["model"]),
        gpu=str(meta["gpu"]),
        engine_version=f"vLLM {meta['vllm_version']}",
        dense=dense,
        per_sequence=per_sequence,
        attention=_attention(folder / "attention.csv"),
    )


def _meta(path: Path) -> dict[str, Any]:
    try:
        meta = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: is missing; a layer profile has it") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: cannot be read as YAML: {reason}") from error
    for key in ("model", "gpu", "vllm_version"):
        if not isinstance(meta, dict) or not meta.get(key):
            raise InputError(f"{path}: {key}: this key is missing; it names the measurement")
    degrees = meta.get("tp_degrees") or [1]
    if not isinstance(degrees, list) or 1 not in degrees:
        raise InputError(
            f"{path}: tp_degrees is {degrees}; only profiles of one GPU are supported, since "
            "the all-reduce between several is not in a layer profile"
        )
    result: dict[str, Any] = meta
    return result


def _table(path: Path, columns: Iterable[str], labels: Iterable[str] = ()) -> pd.DataFrame:
    try:
        table = pd.read_csv(path)
    except FileNotFoundError:
        raise InputError(f"{path}: is missing; a layer profile has it") from None
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: cannot be read as CSV: {reason}") from error
    for column in (*labels, *columns):
        if column not in table:
            raise InputError(
                f"{path}: column {column} is missing; it has {', '.join(map(str, table))}"
            )
    if not len(table):
        raise InputError(f"{path}: has no rows")
    for column in columns:
        numbers = pd.to_numeric(table[column], errors="coerce").to_numpy(np.float64)
        bad = ~np.isfinite(numbers) | (numbers < 0)
        if column == "time_us":
            bad |= (numbers <= 0) | (numbers > _SLOWEST_US)
        if bad.any():
            row = int(bad.argmax())
            wanted = "microseconds, above 0 and below 10 s" if column == "time_us" else "at least 0"
            raise InputError(
                f"{path}: row {row + 2}: {column} is {table[column].iloc[row]}; it must be a "
                f"number, {wanted}"
            )
        table[column] = numbers
    return table


def _curves(path: Path, count: str, required: set[str], optional: set[str]) -> dict[str, Curve]:
    table = _table(path, (count, "time_us"), ("layer",))
    found = {str(name) for name in table["layer"].unique()}
    if unknown := sorted(found - required - optional):
        raise InputError(
            f"{path}: layer {unknown[0]!r} is unknown, so how often a step runs it is too; known: "
            f"{', '.join(sorted(required | optional))} (mixtures of experts are not supported)"
        )
    if missing := sorted(required - found):
        raise InputError(f"{path}: layer {missing[0]!r} is missing")
    curves = {}
    for name, rows in table.groupby("layer"):
        mean = rows.groupby(count)["time_us"].mean()  # a grid may hold a point twice
        if len(mean) < 2:
            raise InputError(f"{path}: layer {name!r} has a single {count} count; give several")
        counts = mean.index.to_numpy(np.float64)
        curves[str(name)] = Curve(counts, mean.to_numpy(np.float64))
    return curves


def _attention(path: Path) -> dict[str, Floats]:
    table = _table(path, _ATTENTION)
    decodes, prefills = table["n_decode"] > 0, table["prefill_chunk"] > 0
    if not (decodes & ~prefills).any() or not (prefills & ~decodes).any():
        raise InputError(f"{path}: give rows with decodes alone and rows with a prefill alone")
    for column, rows in (("n_decode", decodes), ("prefill_chunk", prefills)):
        if table.loc[rows, column].nunique() < 2:
            raise InputError(
                f"{path}: {column} has a single size; a cost per size cannot be told from it"
            )
    return {name: table[name].to_numpy(np.float64) for name in _ATTENTION}
