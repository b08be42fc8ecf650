"""All formats, in the order in which they are listed."""

from __future__ import annotations

from fleetsim.traces.sources.access_log import ENVOY, NGINX
from fleetsim.traces.sources.aiperf import AIPERF, DYNAMO
from fleetsim.traces.sources.azure import AZURE
from fleetsim.traces.sources.bailian import BAILIAN
from fleetsim.traces.sources.bench_serve import BENCH_SERVE
from fleetsim.traces.sources.blis import BLIS
from fleetsim.traces.sources.burstgpt import BURSTGPT
from fleetsim.traces.sources.litellm import LITELLM
from fleetsim.traces.sources.llmservingsim import LLMSERVINGSIM
from fleetsim.traces.sources.mooncake import MOONCAKE
from fleetsim.traces.sources.openai_log import OPENAI
from fleetsim.traces.sources.otel import OTEL
from fleetsim.traces.sources.plain import PLAIN
from fleetsim.traces.sources.ragpulse import RAGPULSE
from fleetsim.traces.sources.registry import TraceFormat
from fleetsim.traces.sources.splitwise import SPLITWISE
from fleetsim.traces.sources.timed_trace import GUIDELLM, TIMED_TRACE
from fleetsim.traces.sources.tracelab import TRACELAB
from fleetsim.traces.sources.vidur import VIDUR
from fleetsim.traces.sources.weka import WEKA

FORMATS: dict[str, TraceFormat] = {
    form.name: form
    for form in (
        AZURE,
        BURSTGPT,
        MOONCAKE,
        BAILIAN,
        RAGPULSE,
        WEKA,
        TRACELAB,
        LLMSERVINGSIM,
        VIDUR,
        SPLITWISE,
        AIPERF,
        DYNAMO,
        TIMED_TRACE,
        GUIDELLM,
        BENCH_SERVE,
        BLIS,
        LITELLM,
        ENVOY,
        NGINX,
        OTEL,
        OPENAI,
        PLAIN,
    )
}
"""The formats that :func:`load_trace` reads, by name."""
