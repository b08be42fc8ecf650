"""What each number of a summary means, one line each. A number without a line here is a fault."""

from __future__ import annotations

from collections.abc import Sequence

_OUTCOME_COUNTS = {
    "arrived": "requests that clients issued; the sum of the five outcomes below",
    "completed": "requests whose client holds every token",
    "rejected": "requests refused by the gateway or by admission, after the client's last attempt",
    "failed": "requests lost to a fault, after the client's last attempt",
    "cancelled": "requests that the client gave up (timeout or cancel)",
    "unfinished": "requests still under way when the run stopped at its horizon or was interrupted",
}
_MEASURES = {
    "client_ttft_s": "seconds from the client sending its first attempt to the client holding the "
    "first token: both network legs, retries and every wait included",
    "gateway_ttft_s": "seconds from arrival at the gateway to the first token leaving it (the "
    "gateway passes tokens on at once)",
    "engine_ttft_s": "seconds from arrival at the engine's API server to the first token there; "
    "vLLM's time_to_first_token_seconds",
    "tpot_s": "seconds per output token after the first, at the engine: (last token - first "
    "token) / (output tokens - 1); undefined for a single token",
    "e2e_s": "seconds from the client sending its first attempt to the client holding the last "
    "token",
    "queue_s": "seconds from joining the engine's waiting queue to being first scheduled; vLLM's "
    "request_queue_time_seconds",
    "itl_s": "seconds between one token of a request and its next at the engine, every gap of the "
    "whole run, warm-up and cool-down included, from a histogram with bins 1 % wide; vLLM's "
    "inter_token_latency_seconds",
}
_STATISTICS = {
    "count": "how many values there are",
    "mean": "arithmetic mean",
    "p50": "50th percentile",
    "p90": "90th percentile",
    "p99": "99th percentile",
}
_PHASES = {
    "network_in_s": "client to gateway",
    "gateway_s": "in the gateway and the router, until dispatch to a replica",
    "api_s": "in the engine's API server",
    "queue_s": "in the engine's waiting queue",
    "prefill_s": "from first scheduled to first token, without stalls",
    "decode_s": "from first to last token, without stalls",
    "stall_s": "preempted, waiting to be scheduled again",
    "network_out_s": "last token's way to the client",
}
_IN_WINDOW = "completed requests that arrived in the measurement window"

DEFINITIONS: dict[str, str] = {
    "provenance.seed": "the run's one seed; every draw is keyed by it",
    "provenance.trace_synthetic": "whether the trace was made by a generator, not recorded",
    "window.start_s": "start of the measurement window (the end of the warm-up)",
    "window.end_s": "end of the measurement window (the start of the cool-down); the run goes on",
    "window.offered": "requests that arrived in the measurement window, whatever became of them",
    "window.completed": "those of them that completed, whenever that was",
    "run.end_s": "when the run ended: the last request's end, or the horizon; it began at 0",
    **{f"requests.{name}": f"whole run: {line}" for name, line in _OUTCOME_COUNTS.items()},
    "requests.reasons.*.*": "requests of this outcome by the reason given, whole run",
    "requests.turns_not_issued.*": "turns of sessions that were never sent, and so have not arrived, "
    "by reason: the request they waited for was rejected, failed or cancelled, or the run ended "
    "first; only for traces with `think_s`",
    **{f"tenants.*.{name}": f"this tenant: {line}" for name, line in _OUTCOME_COUNTS.items()},
    "rates.offered_per_s": "requests that arrived in the measurement window / its length",
    "rates.completed_per_s": "completed requests that ended in the measurement window / its length",
    "rates.prompt_tokens_per_s": "prompt tokens (cached ones too) of completed requests that "
    "ended in the measurement window / its length",
    "rates.output_tokens_per_s": "output tokens of completed requests that ended in the "
    "measurement window / its length",
    "rates.run_completed_per_s": "completed requests / run.end_s, the tail of the run included",
    "rates.run_prompt_tokens_per_s": "prompt tokens of completed requests / run.end_s",
    "rates.run_output_tokens_per_s": "output tokens of completed requests / run.end_s",
    **{
        f"latency.{name}.{statistic}": (
            f"{how}: {line}" if name == "itl_s" else f"{how} over {_IN_WINDOW}: {line}"
        )
        for name, line in _MEASURES.items()
        for statistic, how in _STATISTICS.items()
    },
    **{
        f"phases_mean_s.{name}": f"mean over {_IN_WINDOW}, in seconds: {line}; the phases sum to "
        "the mean of e2e_s"
        for name, line in _PHASES.items()
    },
    "slo.passed": "whether every percentile target was met; undefined if none is stated or one "
    "has no request to look at",
    "slo.percentiles.*.percentile": "which percentile the target speaks of, 0 to 100",
    "slo.percentiles.*.at_most_s": "the target's bound in seconds",
    "slo.percentiles.*.max_prompt_tokens": "longest prompt that the target counts; null: all",
    "slo.percentiles.*.observed_s": "the percentile over all offered requests that the target "
    "counts, one that did not complete being infinitely slow; null when infinite or nothing counts",
    "slo.percentiles.*.completed_s": "the percentile over those of them that completed; to be "
    "read beside observed_s, never judged by",
    "slo.percentiles.*.requests": "offered requests that the target counts (for TPOT those with at "
    "least two tokens, and the misses)",
    "slo.percentiles.*.misses": "those of them that did not complete",
    "slo.percentiles.*.passed": "observed_s <= at_most_s",
    "slo.per_request.*": "the bound in seconds that each request is held to",
    "slo.good": "offered requests in the measurement window that completed and met every "
    "per-request bound (TPOT of a single token counts as met)",
    "slo.attainment": "slo.good / window.offered; rejected, failed, cancelled and unfinished "
    "requests are misses",
    "slo.goodput_per_s": "slo.good / length of the measurement window",
    "pools.*.replicas": "replicas that ever existed in the run",
    "pools.*.gpus": "GPUs of those replicas",
    "pools.*.dispatched": "requests sent to one of the pool's replicas, whole run",
    "pools.*.offered_per_s": "requests dispatched to the pool that arrived in the measurement "
    "window / its length",
    "pools.*.utilisation.offered_over_slo_capacity": "offered_per_s / the highest offered rate at "
    "which the SLO still holds; null while that is unknown",
    "pools.*.utilisation.token_budget_fraction": "scheduled tokens / (steps x "
    "max_num_batched_tokens), whole run",
    "pools.*.utilisation.kv_fraction_mean": "share of KV blocks in use, averaged over the time "
    "that replicas were ready, as the timeline samples it",
    "pools.*.utilisation.kv_fraction_max": "largest share of KV blocks in use on any replica "
    "in the timeline's samples",
    "pools.*.utilisation.busy_fraction": "time with a step running / time ready; near 1 at light "
    "load already, so not a measure of room",
    "pools.*.prefix_hit_rate": "prompt tokens found in the prefix cache when a request was first "
    "scheduled / prompt tokens of scheduled requests, each request once, whole run",
    "pools.*.preemptions": "times that a request was preempted, whole run",
    "pools.*.queue.running_mean": "requests running in the pool, mean over the timeline's samples "
    "in the measurement window",
    "pools.*.queue.running_max": "the largest of those samples",
    "pools.*.queue.waiting_mean": "requests waiting in the engines' queues, mean over the "
    "timeline's samples in the measurement window",
    "pools.*.queue.waiting_max": "the largest of those samples",
    "pools.*.littles_law.l_from_integral": "mean number of requests in the pool, from a time "
    "integral kept apart from the journeys, whole run",
    "pools.*.littles_law.l_from_journeys": "lambda x W from the journeys; equals l_from_integral",
    "pools.*.littles_law.lambda_per_s": "requests dispatched to the pool / run.end_s",
    "pools.*.littles_law.w_mean_s": "mean seconds from dispatch to the last token at the engine, "
    "or to the end of a request that did not complete",
    "pools.*.littles_law.relative_difference": "the two L's difference / the larger; rounding only",
    "pools.*.slow_paths.*": "how often the engine model left its fast path in this way",
    "pools.*.outside_fit.steps": "engine steps with more decodes, tokens or KV tokens than the "
    "profile was fitted to; their seconds are an extrapolation",
    "pools.*.outside_fit.share_of_steps": "those / all engine steps of the pool",
    "pools.*.outside_fit.requests_too_long": "requests dispatched whose context, prompt and output "
    "together, is longer than the profile was fitted to",
    "pools.*.outside_fit.requests_at_saturated_api_server": "requests that came to an API server "
    "when streamed chunks alone took more than 95 % of it; their TTFT is a lower bound",
    "cost.gpu_hours": "GPUs x hours from each replica's request to its release or the run's end",
    "cost.usd": "GPU-hours x price; null where no price is stated",
    "cost.usd_per_million_output_tokens": "cost.usd / output tokens of completed requests x 10^6",
    "cost.usd_per_million_total_tokens": "cost.usd / prompt and output tokens of completed "
    "requests x 10^6; prompt tokens from the cache count",
}
"""One line for each number of the summary, by its path; `*` stands for any name or position."""


def definitions_markdown() -> str:
    """All definitions as Markdown tables, as the documentation shows them."""
    rest = {
        path: line
        for path, line in DEFINITIONS.items()
        if not path.startswith(("latency.", "tenants."))
    }
    tables = [
        ("`latency.<measure>.<statistic>`: the measure", _MEASURES),
        ("`latency.<measure>.<statistic>`: the statistic", _STATISTICS),
        ("`tenants.<tenant>.<count>`, the same counts for each tenant", _OUTCOME_COUNTS),
        ("All others, by their path in the summary", rest),
    ]
    return "\n\n".join(
        "\n".join(
            [f"**{title}**", "", "| number | definition |", "|---|---|"]
            + [f"| `{name}` | {line} |" for name, line in lines.items()]
        )
        for title, lines in tables
    )


def definition(path: Sequence[str]) -> str:
    """What the number at this path of the summary means, such as ("latency", "tpot_s", "p99").

    Raises:
        KeyError: when the summary has no such number.
    """
    for pattern, line in DEFINITIONS.items():
        names = pattern.split(".")
        if len(names) == len(path) and all(
            name in ("*", part) for name, part in zip(names, path, strict=True)
        ):
            return line
    raise KeyError(".".join(path))
