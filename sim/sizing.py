"""Closed forms for sizing a fleet on the back of an envelope: memory, queues, replicas.

They are what one writes down before simulating, and what the simulator is held against: configured
as a queue for which a formula exists, it must agree with the formula (``tests/queueing``).
``docs/sizing.md`` says what each of them leaves out. Units are in the names; 1 GB is 10**9 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite
from typing import NamedTuple

from fleetsim.calibration import memory
from fleetsim.traces.errors import InputError

_ROUNDING = 1e-9  # a quotient this close to a whole number is that number

# -- memory ----------------------------------------------------------------------------------


def kv_bytes_per_token(
    num_layers: int,
    num_kv_heads: int,
    head_dim: int,
    bytes_per_elem: float = 2,
    tensor_parallel_size: int = 1,
) -> float:
    """Bytes of K and V that one token keeps on each GPU: ``2 * layers * kv_heads * head_dim * b``.

    Tensor parallelism divides the KV heads over the GPUs; where there are more GPUs than KV heads,
    each keeps one head. With ``tensor_parallel_size`` 1 it is the replica's total.

    Args:
        num_layers, num_kv_heads, head_dim: of the model; KV heads, not attention heads (GQA).
        bytes_per_elem: 2 for bf16 and fp16, 1 for fp8.
        tensor_parallel_size: GPUs that share the model.

    Raises:
        InputError: (a ValueError) an argument that is not positive, by name.
    """
    _positive_int("num_layers", num_layers)
    _positive_int("num_kv_heads", num_kv_heads)
    _positive_int("head_dim", head_dim)
    _positive("bytes_per_elem", bytes_per_elem)
    _positive_int("tensor_parallel_size", tensor_parallel_size)
    heads_per_gpu = -(-num_kv_heads // tensor_parallel_size)
    return memory.kv_bytes_per_token(num_layers, heads_per_gpu, head_dim, 1) * bytes_per_elem


def max_concurrent_requests(
    hbm_gb: float,
    weight_gb: float,
    reserve_gb: float,
    num_layers: int,
    num_kv_heads: int,
    head_dim: int,
    avg_ctx_tokens: float,
    bytes_per_elem: float = 2,
    tensor_parallel_size: int = 1,
) -> int:
    """How many sequences of average length the KV cache of one replica holds at once.

    Whatever weights and reserve leave of each GPU, divided by what one sequence keeps there, and
    rounded down. It assumes that every sequence is at its average context and that no block is
    partly empty; a profile's ``kv_blocks`` is the number that an engine would start with.

    Args:
        hbm_gb: memory of one GPU, in 10**9 bytes, as all three sizes.
        weight_gb: weights of the whole model; each GPU holds its share.
        reserve_gb: activations, graphs and allocator overhead of one GPU.
        num_layers, num_kv_heads, head_dim, bytes_per_elem: as for `kv_bytes_per_token`.
        avg_ctx_tokens: prompt and output of a sequence in the middle of its life.
        tensor_parallel_size: GPUs of one replica.

    Raises:
        InputError: (a ValueError) an argument out of range, or weights that do not fit.
    """
    _positive("hbm_gb", hbm_gb)
    _not_negative("weight_gb", weight_gb)
    _not_negative("reserve_gb", reserve_gb)
    _positive("avg_ctx_tokens", avg_ctx_tokens)
    bytes_per_token = kv_bytes_per_token(
        num_layers, num_kv_heads, head_dim, bytes_per_elem, tensor_parallel_size
    )
    free_gb = hbm_gb - weight_gb / tensor_parallel_size - reserve_gb
    if free_gb <= 0:
        raise InputError(
            f"hbm_gb: {hbm_gb:g} GB do not hold {weight_gb / tensor_parallel_size:g} GB of weights "
            f"and {reserve_gb:g} GB of reserve; raise tensor_parallel_size, or take larger GPUs"
        )
    return int(free_gb * 1e9 // (bytes_per_token * avg_ctx_tokens))


# -- queues ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue in its steady state.

    Attributes:
        utilization: share of the servers that is busy, rho.
        wait_probability: share of the arrivals that find all servers busy.
        mean_wait_s: mean time before service begins, W_q.
        mean_time_in_system_s: mean of wait and service, W.
        mean_waiting: mean number that wait, L_q.
        mean_in_system: mean number that wait or are served, L.
    """

    utilization: float
    wait_probability: float
    mean_wait_s: float
    mean_time_in_system_s: float
    mean_waiting: float
    mean_in_system: float


def littles_law(arrival_rate_per_s: float, mean_time_in_system_s: float) -> float:
    """Mean number in a stable system, ``L = lambda * W`` (Little, 1961); any order of service.

    Raises:
        InputError: (a ValueError) a negative argument, by name.
    """
    _not_negative("arrival_rate_per_s", arrival_rate_per_s)
    _not_negative("mean_time_in_system_s", mean_time_in_system_s)
    return arrival_rate_per_s * mean_time_in_system_s


def mm1(arrival_rate_per_s: float, service_s: float) -> Queue:
    """One server, Poisson arrivals, exponential service: ``W = service_s / (1 - rho)``.

    (Kleinrock, Queueing Systems, volume 1, section 3.2.)

    Args:
        arrival_rate_per_s: lambda.
        service_s: mean service time, 1 / mu.

    Raises:
        InputError: (a ValueError) an argument that is not positive, or a queue that would grow
            without end (rho >= 1).
    """
    return mmc(arrival_rate_per_s, service_s, 1)


def mmc(arrival_rate_per_s: float, service_s: float, servers: int) -> Queue:
    """Some servers behind one queue, Poisson arrivals, exponential service (Erlang C).

    ``W_q = C * service_s / (servers * (1 - rho))``, C being the share of arrivals that wait.
    (Kleinrock, Queueing Systems, volume 1, section 3.5.)

    Args:
        arrival_rate_per_s: lambda.
        service_s: mean service time, 1 / mu.
        servers: c; of one engine the batch slots, of a fleet the replicas behind a shared queue.

    Raises:
        InputError: as for `mm1`.
    """
    utilization = _utilization(arrival_rate_per_s, service_s, servers)
    waits = erlang_c(servers, arrival_rate_per_s * service_s)
    return _queue(
        arrival_rate_per_s,
        service_s,
        utilization,
        waits,
        waits * service_s / (servers * (1.0 - utilization)),
    )


def mg1(arrival_rate_per_s: float, service_s: float, service_cv: float) -> Queue:
    """One server, Poisson arrivals, any service times (Pollaczek and Khinchine).

    ``W_q = rho * service_s * (1 + cv**2) / (2 * (1 - rho))``: fixed lengths (cv 0, M/D/1) wait
    half as long as exponential ones (cv 1, M/M/1), and heavy tails longer.
    (Kleinrock, Queueing Systems, volume 1, section 5.6.)

    Args:
        arrival_rate_per_s: lambda.
        service_s: mean service time.
        service_cv: standard deviation of the service times over their mean.

    Raises:
        InputError: as for `mm1`.
    """
    _not_negative("service_cv", service_cv)
    utilization = _utilization(arrival_rate_per_s, service_s, 1)
    wait_s = utilization * service_s * (1.0 + service_cv**2) / (2.0 * (1.0 - utilization))
    return _queue(arrival_rate_per_s, service_s, utilization, utilization, wait_s)


def erlang_c(servers: int, offered_load: float) -> float:
    """Share of arrivals that find all servers busy in an M/M/c queue.

    Computed from Erlang B by its recursion over servers, which neither overflows nor cancels.

    Args:
        servers: c.
        offered_load: ``arrival rate * mean service time`` (erlangs), below c.

    Raises:
        InputError: (a ValueError) an argument out of range, by name.
    """
    _positive_int("servers", servers)
    _positive("offered_load", offered_load)
    if offered_load >= servers:
        raise InputError(
            f"offered_load: {offered_load:g} on {servers} servers grows without end; it must be "
            "below the number of servers"
        )
    blocked = 1.0
    for busy in range(1, servers + 1):
        blocked = offered_load * blocked / (busy + offered_load * blocked)
    return blocked / (1.0 - offered_load / servers * (1.0 - blocked))


def _utilization(arrival_rate_per_s: float, service_s: float, servers: int) -> float:
    _positive("arrival_rate_per_s", arrival_rate_per_s)
    _positive("service_s", service_s)
    _positive_int("servers", servers)
    utilization = arrival_rate_per_s * service_s / servers
    if utilization >= 1.0:
        raise InputError(
            f"arrival_rate_per_s: {arrival_rate_per_s:g} is a utilization of {utilization:.3g}, "
            f"and the queue grows without end; it must be below {servers / service_s:g}"
        )
    return utilization


def _queue(
    arrival_rate_per_s: float, service_s: float, utilization: float, waits: float, wait_s: float
) -> Queue:
    return Queue(
        utilization=utilization,
        wait_probability=waits,
        mean_wait_s=wait_s,
        mean_time_in_system_s=wait_s + service_s,
        mean_waiting=littles_law(arrival_rate_per_s, wait_s),
        mean_in_system=littles_law(arrival_rate_per_s, wait_s + service_s),
    )


# -- fleets ----------------------------------------------------------------------------------


class FleetSize(NamedTuple):
    """Replicas to run, and which of the two constraints asks for so many."""

    replicas: int
    regime: str
    """``memory-bound`` or ``throughput-bound``; ties are memory-bound."""


def fleet_size(
    arrival_rate: float,
    mean_time_in_system: float,
    service_rate: float,
    target_utilization: float,
    n_concurrent_per_replica: int,
) -> FleetSize:
    """The larger of two counts of replicas: for throughput, and for memory.

    Throughput: ``c >= arrival_rate / (target_utilization * service_rate)``. Memory, by Little's
    law: ``c >= arrival_rate * mean_time_in_system / n_concurrent_per_replica``.

    ``service_rate`` is what one replica sustains at its SLO (its goodput). The headroom is
    applied here, once: goodput already divided by the target utilisation would cancel it.

    Args:
        arrival_rate: requests per second at the peak.
        mean_time_in_system: seconds from arrival to last token, at the load that is planned for.
        service_rate: requests per second.
        target_utilization: share of the service rate to plan for, above 0 and at most 1.
        n_concurrent_per_replica: sequences whose KV one replica holds.

    Raises:
        InputError: (a ValueError) an argument out of range, by name.
    """
    _positive("arrival_rate", arrival_rate)
    _positive("mean_time_in_system", mean_time_in_system)
    _positive("service_rate", service_rate)
    _positive("target_utilization", target_utilization)
    if target_utilization > 1.0:
        raise InputError(f"target_utilization: must be at most 1, got {target_utilization:g}")
    _positive_int("n_concurrent_per_replica", n_concurrent_per_replica)
    for_throughput = _whole(arrival_rate / (target_utilization * service_rate))
    for_memory = _whole(littles_law(arrival_rate, mean_time_in_system) / n_concurrent_per_replica)
    if for_memory >= for_throughput:
        return FleetSize(for_memory, "memory-bound")
    return FleetSize(for_throughput, "throughput-bound")


def _whole(replicas: float) -> int:
    """Round up, but not for a rounding error."""
    return max(1, ceil(replicas * (1.0 - _ROUNDING)))


# -- arguments -------------------------------------------------------------------------------


def _positive(name: str, value: float) -> None:
    if not (isfinite(value) and value > 0):
        raise InputError(f"{name}: must be a positive number, got {value}")


def _not_negative(name: str, value: float) -> None:
    if not (isfinite(value) and value >= 0):
        raise InputError(f"{name}: must be zero or a positive number, got {value}")


def _positive_int(name: str, value: int) -> None:
    if isinstance(value, bool) or not isfinite(value) or value % 1 or value < 1:
        raise InputError(f"{name}: must be a whole number from 1, got {value}")
