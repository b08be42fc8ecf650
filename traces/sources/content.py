"""The bytes of a trace file: opened, decompressed by magic number, hashed while they are read."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from fleetsim.traces.errors import InputError

HEAD_BYTES = 1 << 18

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_PACKED = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "bzip2-compressed",
    b"\xfd7zXZ\x00": "xz-compressed",
}
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Content:
    """An open trace file, after decompression.

    Attributes:
        path: as the user gave it, for error messages.
        stream: the content, buffered.
        head: its first bytes, up to 256 KiB, still to be read from ``stream``.
    """

    def __init__(self, path: Path, raw: _HashedStream) -> None:
        self.path = path
        self._raw = raw
        self.stream = io.BufferedReader(raw, buffer_size=HEAD_BYTES)
        self.head = self.stream.peek(HEAD_BYTES)

    def sha256(self) -> str:
        """Hash the whole content (hex); reads what is left of the stream."""
        while self.stream.read(HEAD_BYTES):
            pass
        return self._raw.digest.hexdigest()

    def error(self, text: str) -> InputError:
        """Make an error that names the file."""
        return InputError(f"{self.path}: {text}")


@contextmanager
def open_content(path: str | os.PathLike[str]) -> Iterator[Content]:
    """Open a trace file; gz and zst are recognised by their first bytes, whatever the name.

    Raises:
        InputError: a missing or unreadable file, a folder, an empty file, an archive, binary
            rubbish; later, while the stream is read, a damaged or truncated compressed file.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name one trace file in it")
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; give the path of a trace") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    with file:
        content = Content(path, _HashedStream(path, _decompressed(path, file)))
        if not content.head:
            raise content.error("is empty; a trace needs at least one row")
        _refuse_rubbish(content)
        yield content


def _decompressed(path: Path, file: io.BufferedReader) -> _Readable:
    magic = file.peek(8)[:8]
    if magic.startswith(_GZIP):
        return gzip.GzipFile(fileobj=file)
    if magic.startswith(_ZSTD):
        try:
            import zstandard
        except ImportError:
            raise InputError(
                f"{path}: is zst-compressed; install 'fleetsim[zst]' or unpack it first"
            ) from None
        return _ZstdReader(file, zstandard.ZstdDecompressor())
    return file


def _refuse_rubbish(content: Content) -> None:
    head = content.head
    if head.startswith(b"PAR1"):
        return
    for magic, name in _PACKED.items():
        if head.startswith(magic):
            raise content.error(f"is {name}; unpack it, or use gz or zst")
    if head.startswith(_UTF16):
        raise content.error("is UTF-16 text; save it as UTF-8")
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise content.error("is neither UTF-8 text nor Parquet; give a CSV, JSONL or Parquet trace")
    if not text.strip("\ufeff \t\r\n") and len(head) < HEAD_BYTES:
        raise content.error("is empty; a trace needs at least one row")


class _HashedStream(io.RawIOBase):
    """Reads through, hashes, and turns a damaged stream into one line."""

    def __init__(self, path: Path, source: _Readable) -> None:
        self._path = path
        self._source = source
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as the content goes, so that one peek sees a whole head."""
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view):
            piece = self._read(len(view) - filled)
            if not piece:
                break
            view[filled : filled + len(piece)] = piece
            filled += len(piece)
        self.digest.update(view[:filled])
        return filled

    def _read(self, size: int) -> bytes:
        try:
            return self._source.read(size)
        except EOFError:
            problem = "the compressed file is cut short; fetch or compress it again"
        except (gzip.BadGzipFile, zlib.error, _ZstdDamage) as error:
            problem = f"the compressed file is damaged ({error}); fetch or compress it again"
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
        raise InputError(f"{self._path}: {problem}")


class _ZstdDamage(Exception):
    """What zstandard says of a damaged frame."""


class _ZstdReader:
    """Decompress zst frames; unlike zstandard's own reader, a cut-off frame is an error."""

    def __init__(self, file: BinaryIO, decompressor: Any) -> None:
        self._file = file
        self._decompressor = decompressor
        self._frame: Any = None
        self._input = b""
        self._output = b""

    def read(self, size: int) -> bytes:
        while not self._output:
            self._input = self._input or self._file.read(1 << 16)
            if not self._input:
                if self._frame is not None:
                    raise EOFError
                return b""
            if self._frame is None:
                self._frame = self._decompressor.decompressobj()
            try:
                self._output = self._frame.decompress(self._input)
            except Exception as error:  # zstandard.ZstdError; the package is optional
                raise _ZstdDamage(error) from None
            self._input = b""
            if self._frame.eof:
                self._input, self._frame = self._frame.unused_data, None
        piece, self._output = self._output[:size], self._output[size:]
        return piece
