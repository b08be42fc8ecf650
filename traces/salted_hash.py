"""Salted hashes: the same content gives the same id, and nobody without the salt can tell which.

blake2b with the salt as its key. A block's id is the hash of the id before it and of the block's
content, so an id stands for its block and everything before it. Blocks and each column of labels
are hashed apart, so that a word means nothing when it is met elsewhere.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fleetsim.traces.errors import InputError
from fleetsim.traces.schema import Categorical

MIN_SALT_BYTES = 16
_ROOT = bytes(8)


def random_salt() -> bytes:
    """Make a salt from the system's source of secrets."""
    return secrets.token_bytes(32)


def read_salt(path: Path) -> bytes:
    """Read a salt: the whole file, byte for byte.

    Raises:
        InputError: no such file, or fewer than 16 bytes.
    """
    try:
        salt = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(salt) < MIN_SALT_BYTES:
        raise InputError(
            f"{path}: a salt of {len(salt)} bytes can be guessed; must be at least "
            f"{MIN_SALT_BYTES} (head -c 32 /dev/urandom > {path.name})"
        )
    return salt


class SaltedHash:
    """Hashes under one salt.

    Args:
        salt: secret, of any length.
    """

    def __init__(self, salt: bytes) -> None:
        self._key = blake2b(salt).digest()  # keys may have 64 bytes at most

    def chain(self, blocks: Iterable[bytes], count: int) -> list[int]:
        """Give ``count`` chain ids; blocks that are too many are cut, missing ones made up.

        Made-up ids stand for tokens whose content is unknown: only prompts that are equal up to
        there have them in common.
        """
        ids: list[int] = []
        before = _ROOT
        for block in blocks:
            if len(ids) == count:
                return ids
            before = self._digest(before + block, b"block")
            ids.append(int.from_bytes(before, "little"))
        while len(ids) < count:
            before = self._digest(before, b"unknown")
            ids.append(int.from_bytes(before, "little"))
        return ids

    def ids(self, block_ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Hash chain ids that a file has already; equal ones stay equal."""
        known, number = np.unique(block_ids, return_inverse=True)
        hashed = [
            int.from_bytes(self._digest(int(one).to_bytes(8, "little"), b"id"), "little")
            for one in known
        ]
        return np.array(hashed, np.uint64)[number.reshape(-1)]

    def labels(self, column: str, labels: Categorical) -> Categorical:
        """Hash the names of a column into 16 hexadecimal digits each."""
        names = tuple(
            self._digest(name.encode(), b"label " + column.encode()).hex() for name in labels.names
        )
        return Categorical(labels.codes, names)

    def _digest(self, content: bytes, purpose: bytes) -> bytes:
        return blake2b(content, digest_size=8, key=self._key, person=purpose).digest()
