"""ServeGen's published pools, drawn from: each client's rate and lengths come back."""

from pathlib import Path

import numpy as np
import pytest

from fleetsim.traces.errors import InputError
from fleetsim.traces.lengths import EmpiricalLength
from fleetsim.traces.sources.servegen import Client, ClientPool, LengthPdf, load_client_pool
from fleetsim.traces.synth import ClientWindow, compose_clients
from fleetsim.traces.synth.servegen import drawable_clients


def pdf(*values: float) -> LengthPdf:
    return LengthPdf(np.array(values), np.full(len(values), 1.0 / len(values)))


def client(number: int, *lengths: dict[str, LengthPdf], rates: tuple[float, ...]) -> Client:
    windows = len(rates)
    return Client(
        number=number,
        window_start_s=600.0 * np.arange(windows),
        rate_rps=np.array(rates),
        gap_cv=np.ones(windows),
        gap_family=tuple("Gamma" if rate else "" for rate in rates),
        gap_shape=np.ones(windows),
        gap_scale=np.ones(windows),
        length_start_s=1200.0 * np.arange(len(lengths)),
        lengths=lengths,
    )


def both(prompt: float, output: float) -> dict[str, LengthPdf]:
    return {"input_tokens": pdf(prompt), "output_tokens": pdf(output)}


def test_each_window_has_its_own_lengths_or_the_nearest() -> None:
    clients = (
        client(3, both(10, 1), {}, both(30, 3), rates=(1.0, 0.0, 1.0, 1.0, 1.0, 1.0)),
        client(5, {}, {"input_tokens": pdf(7)}, rates=(1.0, 1.0)),
    )
    found = drawable_clients(ClientPool("p", 600.0, clients))
    assert found.left_out == (5,)
    assert (found.windows, found.borrowed_windows) == (5, 2)
    (only,) = found.clients
    assert only.name == "p/3"
    assert [w.start_s for w in only.windows] == [0.0, 1200.0, 1800.0, 2400.0, 3000.0]
    prompts = [w.prompt_tokens.tokens for w in only.windows]  # type: ignore[union-attr]
    assert prompts == [(10,), (10,), (10,), (30,), (30,)]


def test_lengths_of_nothing_are_left_out_and_fractions_refused() -> None:
    lengths = {"input_tokens": pdf(0, 5, 9), "output_tokens": pdf(2)}
    found = drawable_clients(ClientPool("p", 600.0, (client(1, lengths, rates=(1.0, 1.0)),)))
    assert found.clients[0].windows[0].prompt_tokens.tokens == (5, 9)  # type: ignore[union-attr]
    wrong = {**lengths, "output_tokens": pdf(2.5)}
    with pytest.raises(InputError, match="whole numbers"):
        drawable_clients(ClientPool("p", 600.0, (client(1, wrong, rates=(1.0, 1.0)),)))
    with pytest.raises(InputError, match="no client has lengths named text_tokens"):
        drawable_clients(
            ClientPool("p", 600.0, (client(1, lengths, rates=(1.0, 1.0)),)), prompt="text_tokens"
        )


def test_the_published_reasoning_pool_comes_back(shared_dir: Path) -> None:
    path = shared_dir / "traces/servegen/reason_and_multimodal.tar.gz"
    pool = load_client_pool(path, "reason/deepseek-r1")
    found = drawable_clients(pool)
    assert len(found.clients) + len(found.left_out) == len(pool.clients) == 73
    assert found.borrowed_windows == 0 < found.windows
    # Clients send in bursts: the mean prompt of one seed is 3 % off (one standard deviation).
    traces = [compose_clients(found.clients, seed=seed, rate_factor=0.05) for seed in range(4)]
    windows = [window for client in found.clients for window in client.windows]
    requests = np.array([0.05 * w.rate_rps * (w.end_s - w.start_s) for w in windows])
    assert np.mean([len(trace) for trace in traces]) == pytest.approx(requests.sum(), rel=0.05)
    for name in ("prompt_tokens", "output_tokens"):
        means = [np.average(law.tokens, weights=law.weights) for law in laws(windows, name)]
        expected = float(requests @ np.array(means) / requests.sum())
        drawn = np.mean([getattr(trace, name).mean() for trace in traces])
        assert drawn == pytest.approx(expected, rel=0.05)


def laws(windows: list[ClientWindow], name: str) -> list[EmpiricalLength]:
    found = [getattr(window, name) for window in windows]
    assert all(isinstance(law, EmpiricalLength) for law in found)
    return found
