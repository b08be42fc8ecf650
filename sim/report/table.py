"""The summary of a result as one screen in the terminal."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fleetsim.sim.report.format import (
    DASH,
    METRIC_NAMES,
    bound,
    digits,
    dollars,
    percent,
    seconds,
    trace_remarks,
)
from fleetsim.sim.results.result import Result

_STATISTICS = ("mean", "p50", "p90", "p99")
_LOST = ("rejected", "failed", "cancelled", "unfinished")
_POOL_COLUMNS = (
    "GPUs",
    "req/s",
    "token\nbudget",
    "KV\nmean",
    "KV\nmax",
    "busy",
    "queue\nmean",
    "queue\nmax",
    "prefix\nhits",
    "pre-\nempted",
)


def summary_table(result: Result) -> RenderableType:
    """What the run was, what users felt, whether the SLO held, how full the fleet was, its cost.

    Numbers are the summary's; `fleetsim.sim.results.definitions` says what each one means.
    """
    summary = result.summary
    head, middle, foot = _lines(), _lines(), _lines()
    _about(head, summary)
    _slo(middle, summary)
    _rates_and_cost(foot, summary)
    if result.folder is not None:
        foot.add_row("result", Text(str(result.folder)))
    return Group(
        _title(summary["provenance"], result.status),
        head,
        Text(),
        _latency(summary["latency"]),
        Text(),
        middle,
        Text(),
        _pools(summary["pools"]),
        Text(),
        foot,
    )


def _lines() -> Table:
    """Rows of a dim label and what it labels, which wraps beside it."""
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(style="dim", min_width=10)
    lines.add_column()
    return lines


def _title(about: dict[str, Any], status: str) -> Text:
    title = Text(about["scenario"], style="bold")
    title.append(f"   seed {about['seed']}", style="not bold dim")
    if status != "complete":
        title.append(f"   {status}: what was under way counts as missed", style="red")
    return title


def _about(lines: Table, summary: dict[str, Any]) -> None:
    about = summary["provenance"]
    trace = Text(about["trace"])
    for remark in trace_remarks(about):
        trace.append(f"   {remark}", style="yellow")
    lines.add_row("trace", trace)
    for name, pool in summary["pools"].items():
        what = f"{pool['replicas']} x {pool['model']}, {pool['profile']}, {pool['engine']}"
        lines.add_row("pool", Text(f"{name}: {what}"))
    lines.add_row("requests", _requests(summary))
    for note in [*about["notes"], *_outside_fit(summary["pools"])]:
        lines.add_row("note", Text(note, style="yellow"))


def _outside_fit(pools: dict[str, dict[str, Any]]) -> list[str]:
    """What the profiles do not cover, a line each."""
    lines = []
    for name, pool in pools.items():
        outside, profile = pool["outside_fit"], pool["profile"]
        if outside["steps"]:
            lines.append(
                f"pool {name}: {outside['steps']:,} steps ({percent(outside['share_of_steps'])}) "
                f"were larger than those that profile {profile} was fitted to: extrapolated"
            )
        if outside["requests_too_long"]:
            lines.append(
                f"pool {name}: {outside['requests_too_long']:,} requests were longer than those "
                f"that profile {profile} was fitted to: extrapolated"
            )
        if outside["requests_at_saturated_api_server"]:
            lines.append(
                f"pool {name}: {outside['requests_at_saturated_api_server']:,} requests met an API "
                "server that streaming alone had saturated: their TTFT is a lower bound; "
                "raise api_server_count"
            )
    return lines


def _requests(summary: dict[str, Any]) -> Text:
    counts = summary["requests"]
    text = Text(f"{counts['arrived']:,} arrived, {counts['completed']:,} completed")
    for outcome in _LOST:
        if counts[outcome]:
            text.append(f", {counts[outcome]:,} {outcome}", style="red")
            text.append(_reasons(counts["reasons"].get(outcome, {})), style="dim")
    turns = counts.get("turns_not_issued")
    if turns:
        text.append(f", {sum(turns.values()):,} turns not issued", style="red")
        text.append(_reasons(turns), style="dim")
    window = summary["window"]
    if window["offered"] != counts["arrived"]:
        between = f"{digits(window['start_s'])} s and {digits(window['end_s'])} s"
        text.append(f"; measured: the {window['offered']:,} that came between {between}")
    return text


def _reasons(reasons: dict[str, int]) -> str:
    named = {reason: count for reason, count in reasons.items() if reason}
    if len(named) == 1 and len(reasons) == 1:
        return f" ({next(iter(named))})"
    return f" ({', '.join(f'{count:,} {reason}' for reason, count in named.items())})" * bool(named)


def _latency(latency: dict[str, dict[str, Any]]) -> Table:
    table = _table("latency", 2)
    for name in _STATISTICS:
        table.add_column(name, justify="right", min_width=8)
    for metric, label in METRIC_NAMES.items():
        values = (seconds(latency[metric][name]) for name in _STATISTICS)
        table.add_row(label, *values, style="bold" if metric == "client_ttft_s" else "")
    return table


def _table(label: str, gap: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap, 0, 0))
    table.add_column(label)
    return table


def _slo(lines: Table, summary: dict[str, Any]) -> None:
    slo = summary["slo"]
    if not slo["percentiles"] and not slo["per_request"]:
        lines.add_row("SLO", "none stated")
    for index, target in enumerate(slo["percentiles"]):
        lines.add_row("" if index else "SLO", _verdict(target))
    if slo["per_request"]:
        bounds = [f"{METRIC_NAMES[name]} ≤ {bound(b)}" for name, b in slo["per_request"].items()]
        share = Text(percent(slo["attainment"]), style="bold")
        share.append(f" of offered requests met {', '.join(bounds)}", style="not bold")
        lines.add_row("attainment", share)
        rate = Text(f"{digits(slo['goodput_per_s'])} requests/s", style="bold")
        offered = digits(summary["rates"]["offered_per_s"])
        rate.append(f" met them, of {offered} offered", style="not bold")
        lines.add_row("goodput", rate)


def _verdict(target: dict[str, Any]) -> Text:
    mark, style = {True: ("✓", "green"), False: ("✗", "red"), None: (DASH, "yellow")}[
        target["passed"]
    ]
    name, limit = METRIC_NAMES[target["metric"]], bound(target["at_most_s"])
    asked = f"p{target['percentile']:g} {name} ≤ {limit}"
    if target["max_prompt_tokens"] is not None:
        asked += f", prompts ≤ {target['max_prompt_tokens']:,}"
    observed, aside = seconds(target["observed_s"]), ""
    if target["passed"] is None:
        aside = "  no request to judge by"
    elif target["observed_s"] is None:
        observed = "∞"
        aside = (
            f"\n  {target['misses']:,} of {target['requests']:,} never completed; "
            f"among those that did: {seconds(target['completed_s'])}"
        )
    text = Text()
    text.append(mark, style=f"bold {style}")
    text.append(f" {asked:<42}")
    text.append(f"{observed:>9}", style=f"bold {style}")
    text.append(aside, style="dim")
    return text


def _pools(pools: dict[str, dict[str, Any]]) -> Table:
    table = _table("pool", 1)
    for name in _POOL_COLUMNS:
        table.add_column(name, justify="right")
    for name, pool in pools.items():
        use, queue = pool["utilisation"], pool["queue"]
        table.add_row(
            Text(name),
            f"{pool['gpus']:,}",
            digits(pool["offered_per_s"]),
            percent(use["token_budget_fraction"], 2),
            percent(use["kv_fraction_mean"], 2),
            percent(use["kv_fraction_max"], 2),
            percent(use["busy_fraction"], 2),
            digits(queue["waiting_mean"], 2),
            digits(queue["waiting_max"], 1),
            percent(pool["prefix_hit_rate"], 2),
            f"{pool['preemptions']:,}",
        )
    return table


def _rates_and_cost(lines: Table, summary: dict[str, Any]) -> None:
    rates, cost = summary["rates"], summary["cost"]
    lines.add_row(
        "throughput",
        f"{digits(rates['completed_per_s'])} requests/s, "
        f"{digits(rates['output_tokens_per_s'])} output tokens/s, "
        f"{digits(rates['prompt_tokens_per_s'])} prompt tokens/s",
    )
    lines.add_row(
        "cost",
        f"{digits(cost['gpu_hours'], 2)} GPU-hours, {dollars(cost['usd'])}; per million tokens: "
        f"{dollars(cost['usd_per_million_output_tokens'])} output, "
        f"{dollars(cost['usd_per_million_total_tokens'])} all",
    )
