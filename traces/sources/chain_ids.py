"""Chain ids of blocks: an id that stands for its block and everything before it.

Ids of a source may name the content of one block, or mean something inside one session only. Here
they become chain ids: a 64-bit hash of the root (the session, or 0) and of all ids from the start
of the prompt. Each id is mixed together with its position, the mixed values are summed up along
the prompt modulo 2**64, and the sum is mixed again with the root. So equal prefixes have equal ids,
and different ones differ but for chance: with ten million blocks, one collision in 400,000 files.
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from fleetsim.traces.schema import IntArray
from fleetsim.traces.sources.record import Record
from fleetsim.traces.sources.rows import Chains

Ids = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(values: Ids) -> Ids:
    """Scramble 64-bit numbers one to one (the finaliser of splitmix64, Steele et al. 2014)."""
    mixed = values + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def chain_ids(lengths: IntArray, ids: Ids, roots: IntArray | None = None) -> Ids:
    """Hash each id with all before it in its row.

    Args:
        lengths: ids per row.
        ids: of all rows, one after another.
        roots: per row, what its chain starts from; rows of different roots share nothing.
    """
    begins = np.repeat(np.cumsum(lengths) - lengths, lengths)
    position = (np.arange(len(ids)) - begins).astype(np.uint64)
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mix(mix(ids) + position * _GOLDEN))])
    along = total[1:] - total[begins]
    if roots is not None:
        # the root is mixed as if it stood before the first id, lest it be taken for an id
        along += mix(mix(np.repeat(roots, lengths).astype(np.uint64)) - _GOLDEN)
    return mix(along)


class ChainColumn:
    """The block ids of a file, collected row by row."""

    def __init__(self) -> None:
        self.lengths = array("q")
        self.ids = array("Q")

    def add(self, record: Record, key: str) -> None:
        """Append the ids of one row.

        Raises:
            InputError: not a list of ids between 0 and 2**64 - 1.
        """
        chain = record.ids(key)
        try:
            self.ids.extend(chain)
        except OverflowError:
            raise record.error(f"{key} must lie between 0 and 2**64 - 1") from None
        self.lengths.append(len(chain))

    def add_none(self) -> None:
        """Append a row without ids."""
        self.lengths.append(0)

    def chains(self, block_tokens: int, roots: IntArray | None = None) -> Chains | None:
        """Make chain ids of what was collected; None where no row has any."""
        lengths = np.array(self.lengths, dtype=np.int64)
        ids = np.array(self.ids, dtype=np.uint64)
        if len(ids) == 0:
            return None
        return Chains(lengths, chain_ids(lengths, ids, roots), block_tokens)


def check_count(record: Record, key: str, input_key: str, prompt: int, block_tokens: int) -> None:
    """Refuse a chain that has neither one id per started block nor one per full block."""
    count = len(record.row[key])
    whole, rest = divmod(prompt, block_tokens)
    started = whole + (rest > 0)
    if count not in (whole, started):
        raise record.error(
            f"{count} {key} for {input_key} {prompt}; must be {started} blocks of {block_tokens} "
            f"tokens (or {whole} without the last, partial one)"
        )
