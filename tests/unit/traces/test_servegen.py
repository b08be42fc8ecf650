"""Client pools as ServeGen publishes them."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from fleetsim.traces import InputError
from fleetsim.traces.sources.servegen import ClientPool, load_client_pool

TRACE = "0,0,0,,0,0\n600,0.5,1.5,Gamma,0.4,5\n1200,2,0.9,Weibull,1.1,0.5\n"
LENGTHS = {
    "0": {"input_tokens": "{}", "output_tokens": "{}"},
    "600": {"input_tokens": "{10: 0.25, 5: 0.75}", "output_tokens": "{1: 1.0}"},
}


def write_client(folder: Path, number: int, trace: str = TRACE, lengths: object = LENGTHS) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"chunk-{number}-trace.csv").write_text(trace)
    (folder / f"chunk-{number}-dataset.json").write_text(json.dumps(lengths))


def test_a_folder(tmp_path: Path) -> None:
    for number in (10, 2):
        write_client(tmp_path / "m-large", number)
    pool = load_client_pool(tmp_path / "m-large")
    assert (pool.name, pool.window_s) == ("m-large", 600.0)
    assert [client.number for client in pool.clients] == [2, 10]
    client = pool.clients[0]
    assert client.window_start_s.tolist() == [0, 600, 1200]
    assert client.rate_rps.tolist() == [0, 0.5, 2]
    assert client.gap_cv.tolist() == [0, 1.5, 0.9]
    assert client.gap_family == ("", "Gamma", "Weibull")
    assert client.gap_shape.tolist() == [0, 0.4, 1.1]
    assert client.gap_scale.tolist() == [0, 5, 0.5]
    assert client.length_start_s.tolist() == [0, 600]
    assert client.lengths[0] == {}
    pdf = client.lengths[1]["input_tokens"]
    assert pdf.values.tolist() == [5, 10]
    assert pdf.probabilities.tolist() == [0.75, 0.25]
    assert pdf.mean == 6.25
    assert pool.mean_rate_rps() == pytest.approx(2 * 2.5 / 3)


def test_a_tar_of_two_pools(tmp_path: Path) -> None:
    write_client(tmp_path / "a", 0)
    write_client(tmp_path / "b", 0)
    archive = tmp_path / "pools.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "a", "reason/a")
        tar.add(tmp_path / "b", "reason/b")
    assert load_client_pool(archive, "reason/b").name == "reason/b"
    with pytest.raises(InputError, match="holds reason/a, reason/b; name one with pool="):
        load_client_pool(archive)
    with pytest.raises(InputError, match="has no pool 'c'; it has reason/a, reason/b"):
        load_client_pool(archive, "c")
    archive.write_bytes(archive.read_bytes()[:200])
    with pytest.raises(InputError, match="is no readable tar or folder"):
        load_client_pool(archive, "reason/a")


@pytest.mark.parametrize(
    ("trace", "lengths", "expected"),
    [
        ("0,0,0,,0\n", LENGTHS, "trace.csv: row 1: is '0,0,0,,0'; must be t,rate,cv"),
        (TRACE.replace("Gamma", "Pareto"), LENGTHS, "row 2: 'Pareto'; must be Gamma, Weibull or"),
        (TRACE.replace("0.5,1.5,Gamma", "nan,1.5,Gamma"), LENGTHS, "row 2: numbers must be finite"),
        (TRACE.replace("0,0,0,,0,0", "0,1,0,,0,0"), LENGTHS, "row 1: a window with requests needs"),
        (TRACE.replace("1200,", "600,"), LENGTHS, "needs two windows at least, of rising start"),
        (TRACE, {"0": {"x": "{1: 0.5}"}}, "window 0: x: probabilities add up to 0.5; must be 1"),
        (TRACE, {"0": {"x": "__import__('os')"}}, "window 0: x: must be a dict of numbers and"),
        (TRACE, {"0": {"x": "{-1: 1.0}"}}, "window 0: x: must be a dict of numbers and"),
        (TRACE, {"0": {"x": 5}}, "window 0: x: must be a dict of numbers and"),
        (TRACE, {"noon": {}}, "is not JSON of windows by their start in seconds"),
        (TRACE, {"0": 5}, "window 0: must be an object of distributions"),
    ],
)
def test_bad_pools(tmp_path: Path, trace: str, lengths: object, expected: str) -> None:
    write_client(tmp_path / "p", 3, trace, lengths)
    with pytest.raises(InputError) as caught:
        load_client_pool(tmp_path / "p")
    assert expected in str(caught.value)
    assert "chunk-3-" in str(caught.value)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file; give a ServeGen pool"):
        load_client_pool(tmp_path / "none")
    with pytest.raises(InputError, match=r"holds no chunk-N-trace\.csv"):
        load_client_pool(tmp_path)
    write_client(tmp_path / "p", 1)
    (tmp_path / "p/chunk-1-dataset.json").unlink()
    with pytest.raises(InputError, match=r"chunk-1-trace\.csv: lacks its other file of the pair"):
        load_client_pool(tmp_path / "p")


def weighted_mean(pool: ClientPool, name: str) -> float:
    tokens = requests = 0.0
    for client in pool.clients:
        of = np.searchsorted(client.length_start_s, client.window_start_s, side="right") - 1
        for rate, window in zip(client.rate_rps, of, strict=True):
            if name in client.lengths[window]:
                tokens += rate * client.lengths[window][name].mean
                requests += rate
    return tokens / requests


@pytest.mark.parametrize(
    ("name", "clients", "mean_rps", "max_rps", "peak", "top", "cv", "lengths"),
    [
        (
            "reason/deepseek-r1", 73, 16.0, 42.5, (4.9, 9.9), (0.29, 0.68, 25), (1.03, 2.28),
            {"input_tokens": 1270, "output_tokens": 1530},
        ),
        (
            "multimodal/mm-image", 35, 9.5, 13.3, (2.3, 2.7), (0.14, 0.83, 15), (1.37, 2.21),
            {"text_tokens": 572, "image_tokens": 650, "output_tokens": 130},
        ),
    ],
)  # fmt: skip
def test_published_pools(
    shared_dir: Path,
    name: str,
    clients: int,
    mean_rps: float,
    max_rps: float,
    peak: tuple[float, float],
    top: tuple[float, float, int],
    cv: tuple[float, float],
    lengths: dict[str, int],
) -> None:
    path = shared_dir / "traces/servegen/reason_and_multimodal.tar.gz"
    pool = load_client_pool(path, name)
    total = np.sum([client.rate_rps for client in pool.clients], axis=0)
    assert (len(pool.clients), pool.window_s, len(total)) == (clients, 600.0, 144)
    assert round(pool.mean_rate_rps(), 1) == mean_rps
    assert round(float(total.max()), 1) == max_rps
    hourly = total.reshape(-1, 6).mean(axis=1)
    assert round(float(hourly.max() / hourly.min()), 1) == peak[0]
    assert round(float(total.max() / total.min()), 1) == peak[1]
    share = np.sort([client.rate_rps.mean() for client in pool.clients])[::-1]
    share = np.cumsum(share / share.sum())
    assert (round(float(share[0]), 2), round(float(share[9]), 2)) == top[:2]
    assert int(np.searchsorted(share, 0.9)) + 1 == top[2]
    rates = np.concatenate([client.rate_rps for client in pool.clients])
    cvs = np.concatenate([client.gap_cv for client in pool.clients])[rates > 0]
    rates = rates[rates > 0]
    assert round(float(np.median(cvs)), 2) == cv[0]
    assert round(float(cvs @ rates / rates.sum()), 2) == cv[1]
    for length, mean in lengths.items():
        assert weighted_mean(pool, length) == pytest.approx(mean, abs=5 if mean > 1000 else 0.5)


def test_windows_without_lengths_are_as_many_as_known(shared_dir: Path) -> None:
    path = shared_dir / "traces/servegen/reason_and_multimodal.tar.gz"
    pool = load_client_pool(path, "reason/deepseek-r1")
    windows = [window for client in pool.clients for window in client.lengths]
    assert (len(windows), sum(not window for window in windows)) == (292, 108)
