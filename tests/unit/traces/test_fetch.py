"""Fetching, against a server on this machine that can be made to misbehave."""

from __future__ import annotations

import gzip
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fleetsim.traces import InputError
from fleetsim.traces.fetch import FOLDER_VARIABLE, fetch_files, fetch_trace
from fleetsim.traces.published import PUBLISHED, PublishedFile, PublishedTrace
from fleetsim.traces.sources.known import KNOWN_FILES

DATA = bytes(range(256)) * 1000


class Server(ThreadingHTTPServer):
    """Serves DATA; `cut_at` ends answers early, `ranges` says if it can go on."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.body = DATA
        self.cut_at: int | None = None
        self.ranges = True
        self.seen: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/t.csv"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers["Range"]
        self.server.seen.append(asked)
        if "missing" in self.path:
            self.send_error(404)
            return
        body, begin = self.server.body, 0
        if asked and self.server.ranges:
            begin = int(asked.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206)
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - begin))
        self.end_headers()
        self.wfile.write(body[begin : self.server.cut_at])

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)


def published(url: str) -> PublishedTrace:
    file = PublishedFile("t.csv", url, len(DATA), hashlib.sha256(DATA).hexdigest())
    return PublishedTrace("test", "a test", "MIT", "nobody", (file,))


def test_downloaded_once_and_then_cached(server: Server, tmp_path: Path) -> None:
    told: list[int] = []
    (path,) = fetch_files(
        published(server.url), folder=tmp_path, progress=lambda here, size: told.append(here)
    )
    assert path == tmp_path / "test" / "t.csv"
    assert path.read_bytes() == DATA
    assert told[-1] == len(DATA)
    assert fetch_files(published(server.url), folder=tmp_path) == [path]
    assert server.seen == [None]
    assert [p.name for p in path.parent.iterdir()] == ["t.csv"]


def test_a_corrupted_copy_is_fetched_again(server: Server, tmp_path: Path) -> None:
    (path,) = fetch_files(published(server.url), folder=tmp_path)
    path.write_bytes(DATA[:-1] + b"x")
    fetch_files(published(server.url), folder=tmp_path)
    assert path.read_bytes() == DATA
    assert len(server.seen) == 2


@pytest.mark.parametrize("ranges", [True, False])
def test_a_cut_off_download_goes_on(server: Server, tmp_path: Path, ranges: bool) -> None:
    server.cut_at, server.ranges = 100_000, ranges  # whole pieces of 64 KiB are kept
    with pytest.raises(InputError, match="ended after 65,536 of 256,000 bytes; run it again"):
        fetch_files(published(server.url), folder=tmp_path)
    assert not (tmp_path / "test" / "t.csv").exists()
    server.cut_at = None
    (path,) = fetch_files(published(server.url), folder=tmp_path)
    assert path.read_bytes() == DATA
    assert server.seen == [None, "bytes=65536-"]


@pytest.mark.parametrize("body", [DATA[:-1] + b"x", DATA + b"more", b"y" * len(DATA)])
def test_another_content_is_not_kept(server: Server, tmp_path: Path, body: bytes) -> None:
    server.body = body
    with pytest.raises(InputError, match=r"not the published one, sha256 \w{64}; nothing was kept"):
        fetch_files(published(server.url), folder=tmp_path)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    server.body = DATA  # and nothing stands in the way of the right one
    assert fetch_files(published(server.url), folder=tmp_path)[0].read_bytes() == DATA


def test_offline_says_what_to_do(tmp_path: Path) -> None:
    one = published("http://127.0.0.1:1/t.csv")
    with pytest.raises(InputError) as caught:
        fetch_files(one, folder=tmp_path)
    said = str(caught.value)
    for part in (one.files[0].url, one.files[0].sha256, FOLDER_VARIABLE):
        assert part in said
    assert "\n" not in said


def test_a_missing_file_says_so(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be downloaded \(HTTP 404\)"):
        fetch_files(published(server.url + "/missing"), folder=tmp_path)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_a_folder_that_has_it_comes_first(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    held = tmp_path / "held" / "deep" / name
    held.parent.mkdir(parents=True)
    held.write_bytes(gzip.compress(b"x") if name.endswith(".gz") else b"x")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "held"))
    with pytest.raises(InputError, match=f"{name}: its content is not the published one"):
        fetch_files(published(server.url), folder=tmp_path)
    text = b"a,b\n1,2\n"  # a trace is text; the check refuses rubbish
    held.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    one = published(server.url)
    file = replace(one.files[0], sha256=hashlib.sha256(text).hexdigest())
    assert fetch_files(replace(one, files=(file,)), folder=tmp_path) == [held]
    assert server.seen == []
    held.unlink()
    assert fetch_files(one, folder=tmp_path)[0].read_bytes() == DATA
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="no folder"):
        fetch_files(one, folder=tmp_path)


def test_every_published_trace_is_as_pinned(
    shared_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(shared_dir / "traces"))
    for name, one in PUBLISHED.items():
        paths = fetch_trace(name)
        assert len(paths) == len(one.files)
        for path, file in zip(paths, one.files, strict=True):
            data = path.read_bytes()
            data = gzip.decompress(data) if path.suffix == ".gz" else data
            assert (len(data), hashlib.sha256(data).hexdigest()) == (file.size_bytes, file.sha256)


def test_licences_agree_with_those_of_known_files() -> None:
    by_hash = {file.sha256: one for one in PUBLISHED.values() for file in one.files}
    both = by_hash.keys() & KNOWN_FILES.keys()
    assert both
    for sha256 in both:
        assert KNOWN_FILES[sha256].licence.startswith(by_hash[sha256].licence)


def test_unknown_name() -> None:
    with pytest.raises(InputError, match="known are azure-2023-code"):
        fetch_trace("azure")
