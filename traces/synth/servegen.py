"""ServeGen's published clients, as clients that requests can be drawn from."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from fleetsim.traces.arrivals import Gaps
from fleetsim.traces.errors import InputError
from fleetsim.traces.lengths import EmpiricalLength
from fleetsim.traces.sources.servegen import Client as PublishedClient
from fleetsim.traces.sources.servegen import ClientPool, LengthPdf
from fleetsim.traces.synth.clients import Client, ClientWindow

_GAPS: dict[str, Gaps] = {"Gamma": "gamma", "Weibull": "weibull"}


@dataclass(frozen=True, slots=True)
class DrawableClients:
    """Clients for :func:`fleetsim.traces.synth.compose_clients`, and what they were made without.

    Attributes:
        clients: by rising number; the name of each is the pool's with its number.
        windows: of all clients, in which requests are sent.
        borrowed_windows: of those, how many have the lengths of another time of the same client,
            since none are published for their own.
        left_out: numbers of clients that have no lengths at all.
    """

    clients: tuple[Client, ...]
    windows: int
    borrowed_windows: int
    left_out: tuple[int, ...]


def drawable_clients(
    pool: ClientPool, *, prompt: str = "input_tokens", output: str = "output_tokens"
) -> DrawableClients:
    """Make the clients of a published pool drawable.

    Of the laws of gaps the coefficient of variation is taken, and the shape that has it: where the
    file's shape says another, the two contradict each other. Windows without published lengths
    take those of the nearest window of the same client, the earlier one of two. Lengths of 0 tokens
    are left out of their distributions: such a request was not served.

    Args:
        pool: as :func:`fleetsim.traces.sources.servegen.load_client_pool` reads it.
        prompt, output: names of the lengths in its files; ``text_tokens`` of prompts with images.

    Raises:
        InputError: no client has both lengths.
    """
    clients, left_out, windows, borrowed = [], [], 0, 0
    for published in pool.clients:
        known = [
            i
            for i, lengths in enumerate(published.lengths)
            if prompt in lengths and output in lengths
        ]
        if not known:
            left_out.append(published.number)
            continue
        client, sending, taken = _client(pool, published, known, prompt, output)
        clients.append(client)
        windows += sending
        borrowed += taken
    if not clients:
        raise InputError(f"pool {pool.name}: no client has lengths named {prompt} and {output}")
    return DrawableClients(tuple(clients), windows, borrowed, tuple(left_out))


def _client(
    pool: ClientPool, published: PublishedClient, known: list[int], prompt: str, output: str
) -> tuple[Client, int, int]:
    """The client, its windows with requests, and how many of them have borrowed lengths."""
    laws = {
        i: (_law(published.lengths[i][prompt]), _law(published.lengths[i][output])) for i in known
    }
    starts = published.length_start_s.tolist()
    windows, borrowed = [], 0
    for start_s, rate_rps, cv, family in zip(
        published.window_start_s.tolist(),
        published.rate_rps.tolist(),
        published.gap_cv.tolist(),
        published.gap_family,
        strict=True,
    ):
        if rate_rps == 0:
            continue
        own = max(bisect_right(starts, start_s) - 1, 0)
        nearest = min(known, key=lambda i: (abs(i - own), i))
        borrowed += nearest != own
        prompts, outputs = laws[nearest]
        end_s = start_s + pool.window_s
        windows.append(ClientWindow(start_s, end_s, rate_rps, cv, _GAPS[family], prompts, outputs))
    return Client(f"{pool.name}/{published.number}", tuple(windows)), len(windows), borrowed


def _law(pdf: LengthPdf) -> EmpiricalLength:
    served = pdf.values >= 1
    if not served.any() or bool((pdf.values != np.floor(pdf.values)).any()):
        raise InputError("lengths of a published client must be whole numbers, some of at least 1")
    tokens = tuple(int(value) for value in pdf.values[served])
    return EmpiricalLength(tokens, tuple(pdf.probabilities[served].tolist()))
