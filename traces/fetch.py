"""Get a published trace: from a folder that has it, from the cache, or from where it lies.

Every file is checked against its pinned sha256, wherever it comes from.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fleetsim.traces.errors import InputError
from fleetsim.traces.published import PUBLISHED, PublishedFile, PublishedTrace
from fleetsim.traces.sources.content import open_content

FOLDER_VARIABLE = "FLEETSIM_TRACES"
"""Environment variable: a folder that is searched first, for machines without internet."""

Progress = Callable[[int, int], None]
"""Told the bytes of a file that are here, and its length."""

_TIMEOUT_S = 30
_PIECE_BYTES = 1 << 16


def fetch_trace(
    name: str, *, folder: str | os.PathLike[str] | None = None, progress: Progress | None = None
) -> list[Path]:
    """Get the files of a published trace.

    Args:
        name: of :data:`~fleetsim.traces.published.PUBLISHED`.
        folder: where downloads are kept; None is the user's cache folder.
        progress: told of downloads as they go on.

    Returns:
        Their paths, the trace first.

    Raises:
        InputError: an unknown name, no connection, a file that is not the pinned one.
    """
    if name not in PUBLISHED:
        raise InputError(f"unknown trace {name!r}; known are {', '.join(PUBLISHED)}")
    return fetch_files(PUBLISHED[name], folder=folder, progress=progress)


def fetch_files(
    published: PublishedTrace,
    *,
    folder: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Get the files of a data set; as :func:`fetch_trace`."""
    held = os.environ.get(FOLDER_VARIABLE)
    if held:
        if not Path(held).is_dir():
            raise InputError(f"{FOLDER_VARIABLE}={held}: is no folder; name one, or unset it")
        found = [_find(Path(held), file) for file in published.files]
        here = [path for path in found if path is not None]
        if len(here) == len(found):
            return here
    return [_download(published, file, folder, progress) for file in published.files]


def _find(folder: Path, file: PublishedFile) -> Path | None:
    """Look for the file below a folder, by its name or as .gz, and check its content.

    Raises:
        InputError: a file of that name, but none with the right content.
    """
    wrong = None
    for path in sorted(_named(folder, file.name)):
        with open_content(path) as content:
            if content.sha256() == file.sha256:
                return path
        wrong = wrong or path
    if wrong is not None:
        raise InputError(
            f"{wrong}: its content is not the published one, sha256 {file.sha256}; replace it, or "
            f"unset {FOLDER_VARIABLE}"
        )
    return None


def _named(folder: Path, name: str) -> Iterator[Path]:
    for candidate in (name, f"{name}.gz"):
        yield from (path for path in folder.rglob(candidate) if path.is_file())


def _download(
    published: PublishedTrace,
    file: PublishedFile,
    folder: str | os.PathLike[str] | None,
    progress: Progress | None,
) -> Path:
    try:
        import pooch
    except ImportError:
        raise InputError(
            f"{published.name}: downloading needs pooch; install 'fleetsim[fetch]', or put "
            f"{file.name} from {file.url} into a folder and name it in {FOLDER_VARIABLE}"
        ) from None
    pooch.get_logger().setLevel("WARNING")
    root = Path(pooch.os_cache("fleetsim")) / "traces" if folder is None else Path(folder)
    place = root / published.name
    store = pooch.create(
        place,
        base_url="",
        registry={file.name: f"sha256:{file.sha256}"},
        urls={file.name: file.url},
    )
    try:
        return Path(store.fetch(file.name, downloader=_Resuming(file, place, progress)))
    except InputError:
        raise
    except ValueError:  # pooch's word for another hash
        raise InputError(
            f"{file.url}: its content is not the published one, sha256 {file.sha256}; nothing was "
            "kept, as the file there has changed or the connection alters it"
        ) from None


class _Resuming:
    """A downloader for pooch that goes on where an earlier try ended; pooch's own begin anew."""

    def __init__(self, file: PublishedFile, place: Path, progress: Progress | None) -> None:
        self._file = file
        # the hash in its name: the beginning of another file is not gone on with
        self._partial = place / f".{file.name}.{file.sha256[:12]}.partial"
        self._progress = progress

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        """Download to pooch's temporary file.

        Raises:
            InputError: no connection, or it ended before the file did.
        """
        import requests

        size = self._file.size_bytes
        if self._here() < size:
            try:
                self._go_on(requests, url)
            except (requests.RequestException, OSError) as error:
                if isinstance(error, OSError) and error.filename is not None:
                    raise  # the disk, not the network
                raise self._unreachable(_reason(error)) from None
        here = self._here()
        if here < size:
            raise InputError(
                f"{url}: the connection ended after {here:,} of {size:,} bytes; run it again to "
                "go on from there"
            )
        shutil.move(self._partial, output_file)

    def _here(self) -> int:
        return self._partial.stat().st_size if self._partial.exists() else 0

    def _go_on(self, requests: Any, url: str) -> None:
        here, size = self._here(), self._file.size_bytes
        # "identity": a length and an offset mean the file's own bytes, not a packed answer's
        headers = {"Accept-Encoding": "identity"}
        if here:
            headers["Range"] = f"bytes={here}-"
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT_S) as answer:
            answer.raise_for_status()
            resumed = answer.status_code == requests.codes.partial_content
            with self._partial.open("ab" if resumed else "wb") as file:
                try:
                    for piece in answer.iter_content(_PIECE_BYTES):
                        file.write(piece)
                        if self._progress is not None:
                            self._progress(file.tell(), size)
                        if file.tell() > size:
                            break  # not the pinned file; its hash will say so
                except requests.RequestException:
                    if not file.tell():
                        raise  # else: what came is kept, and told

    def _unreachable(self, reason: str) -> InputError:
        return InputError(
            f"{self._file.url}: cannot be downloaded ({reason}); on a machine without internet, "
            f"put the file, sha256 {self._file.sha256}, into a folder and name the folder in "
            f"{FOLDER_VARIABLE}"
        )


def _reason(error: Exception) -> str:
    """What went wrong, in few words; requests tells the whole stack of causes."""
    answer = getattr(error, "response", None)
    return f"HTTP {answer.status_code}" if answer is not None else type(error).__name__
