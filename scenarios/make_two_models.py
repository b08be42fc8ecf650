"""Writes two-models.csv: five minutes of made-up traffic for two models.

Run it from anywhere; it writes the same bytes every time, beside itself:

    python scenarios/make_two_models.py
"""

from pathlib import Path

import numpy as np

SEED = 12
SPAN_S = 300.0
# model, requests per second, median prompt and output tokens
STREAMS = (("llama-8b", 4.0, 600, 180), ("llama-70b", 0.6, 1500, 350))


def two_models_csv() -> str:
    """The trace in the plain format: Poisson arrivals, lognormal lengths, one model a row."""
    random = np.random.Generator(np.random.PCG64(SEED))
    rows = []
    for model, rate_per_s, prompt_tokens, output_tokens in STREAMS:
        count = int(random.poisson(rate_per_s * SPAN_S))
        arrivals = np.sort(random.uniform(0.0, SPAN_S, count))
        prompts = random.lognormal(np.log(prompt_tokens), 0.8, count).clip(1, 8000)
        outputs = random.lognormal(np.log(output_tokens), 0.7, count).clip(1, 2000)
        rows += [
            (f"{arrival:.3f}", int(prompt), int(output), model)
            for arrival, prompt, output in zip(arrivals, prompts, outputs, strict=True)
        ]
    rows.sort(key=lambda row: float(row[0]))
    lines = ["arrival_s,prompt_tokens,output_tokens,model"]
    lines += [",".join(map(str, row)) for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("two-models.csv").write_text(two_models_csv(), encoding="utf-8")
