"""The default scenario, written out with a comment on every key.

It is what `fleetsim run` runs without a file, what `fleetsim init` writes, and the shipped
`scenarios/quickstart.yaml`: one text, so that they cannot drift apart.
"""

TEMPLATE = """\
# A fleetsim scenario: everything that decides a run.
#
#   fleetsim validate quickstart.yaml
#   fleetsim run quickstart.yaml --set pools.chat.replicas=8
#
# Durations are seconds, or text such as 250ms, 30s, 5m, 2h. Keys behind "#  " can be set too;
# they show the default, or an example where the comment names another default.

name: quickstart # names the result folder
seed: 0 # every random draw is derived from this one number
#  calibration_draw: 1          # machine number 1 within the profiles' error (default: none)

workload:
  trace: sample # the bundled synthetic sample, or a trace file relative to this one
  #  format: azure              # left out: told from the content
  #  time_scale: 1.0            # 4 squeezes the trace: four times the rate, turns closer together
  #  head: 1000                 # only the first so many requests (default: all)
  #  transforms:                # what else is done to the requests, in order (default: nothing)
  #    - window: {from_s: 0, to_s: 10m}
  #    - head: {requests: 100000}
  #    - time_scale: {factor: 1.0}
  #    - dequantize: {tick_s: 3s} # batched stamps, spread (default: the trace's grid)
  #    - superpose: {factor: 4} # four times the sessions at the same tempo: how to raise the rate
  #    - thin: {share: 0.5, by: session}  # or by request, which breaks the reuse of prefixes
  #    - repeat: {times: 1}
  #    - reburst: {cv: 2, bin_s: 60s}     # arrivals drawn anew, under the trace's own rate
  #    - modulate:              # bend the rate to a curve; several curves multiply
  #        day: {peak_to_trough: 10, shape: sinusoid, period_s: 10m, peak_at_s: 5m}
  #        week: {factors: [1, 1, 1, 1, 1, 0.5, 0.5], first_day: 0, day_s: 1d}
  #        flash_crowd: {at_s: 5m, factor: 5, ramp_s: 30s, hold_s: 1m, decay_s: 1m}
  #        points: [[0, 1], [5m, 2]]
  #        bin_s: 10m
  #    - length_map: {column: output_tokens, scale: 1.5, shortest: 1, longest: 4096}
  #    - max_tokens: {output_factor: 2, stop_by_length: 0.1}  # or the same tokens for all
  #    - assign: {column: tenant, zipf: {count: 20, exponent: 1.1}, by: session}
  #    - assign: {column: slo_class, weights: {interactive: 3, batch: 1}, seed: 7}
  #    - attach_sessions: {sessions_per_s: 2, cv: 1}  # when sessions begin
  #    - block_bootstrap: {block_s: 2m}   # blocks of time, drawn anew
  # instead of `trace`, requests made up from the seed, as `vllm bench serve` makes them:
  #  synthetic:
  #    arrivals: {process: poisson, rate_per_s: 8}   # or gamma, with burstiness (1 = poisson)
  #    requests: 500
  #    prompt_tokens: 800
  #    output_tokens: 200
  #    random_range_ratio: 0.0  # 0.5: lengths uniform in half to one and a half times these
  #  closed_loop: {concurrency: 64}   # ignore arrival times, keep so many in flight (default: off)
  #  max_tokens: context        # what requests ask for if the trace does not say:
  #                             # context (all that is left), output (its true length), or a number
  #  stop: eos                  # eos: at the recorded length; length: always at max_tokens
  #  ignore_model: false        # true: all to the default pool, whatever model the trace names
  #  over_length: reject        # prompt leaves no room in the context: reject, or truncate it

client:
  network_delay_s: 0 # one way, between client and gateway
  #  timeout_s: 60s             # clients give up after this (default: never)

gateway:
  service_s: 0 # a gateway worker's time for one request
  workers: 16 # requests that the gateway handles at once
  #  max_tokens_cap: 4096       # requests that ask for more are refused (default: no cap)
  #  tenants:                   # "*" is every tenant without an entry (default: no limits)
  #    "*":
  #      limits: [{policy: token_bucket, tokens_per_minute: 600000, burst_tokens: 100000}]

router:
  routing:
    policy: power_of_two # which replica; `fleetsim policies` lists them with their parameters
  admission:
    policy: always # whether to let a request in at all
  # what the router knows of the caches: none, own_history, events, or with a delay
  # {source: events, delay_s: 500ms}
  prefix_knowledge: own_history
  scrape_interval_s: 1s # how old a scraped metric may be
  #  default_pool: chat         # for requests that name no model (default: the first pool)
  #  log_decisions: false       # record every routing decision with its scores

pools:
  chat: # a name of your choice
    profile: llama-3.1-8b-bf16-tp1-h100 # calibrated GPU, model, precision, TP; or a JSON file
    replicas: 4
    #  model: meta-llama/Meta-Llama-3.1-8B   # the name in requests (default: its Hugging Face id)
    #  gpu_usd_per_hour: 2.5    # (default: the profile's)
    #  engine:                  # `vllm serve` options; left out: vLLM's defaults for this GPU
    #    max_num_seqs: 1024
    #    max_num_batched_tokens: 8192
    #    max_model_len: 131072
    #    block_size: 16
    #    gpu_memory_utilization: 0.92
    #    num_gpu_blocks_override: 27000   # (default: worked out from the profile)
    #    enable_prefix_caching: true
    #    enable_chunked_prefill: true
    #    long_prefill_token_threshold: 0  # longest prefill chunk in one step; 0 is no limit
    #    watermark: 0.0         # share of KV blocks kept free on admission
    #    scheduler_reserve_full_isl: true # admit only if the whole prompt fits
    #    scheduling_policy: fcfs          # or priority
    #    async_scheduling: true
    #    max_loras: 1           # LoRA adapters in one batch; needed if the trace names adapters
    #    kv_cache_dtype: auto
    #    api_server_count: 1    # processes that take prompts in (default: the profile's)
    #    engine_version: "0.32"           # or 0.33: another rule of preemption under priority

slo:
  percentiles: # the run passes if all of these hold
    - {metric: client_ttft_s, percentile: 50, at_most_s: 300ms}
    - {metric: client_ttft_s, percentile: 99, at_most_s: 1s}
    - {metric: tpot_s, percentile: 90, at_most_s: 50ms}
    # add max_prompt_tokens: 2048 to look at short prompts only
  per_request: # a request that meets all of these counts for attainment and goodput
    client_ttft_s: 1s
    tpot_s: 50ms
    #  gateway_ttft_s: 900ms    # these three: no target by default
    #  engine_ttft_s: 800ms
    #  e2e_s: 30s

measurement:
  warm_up_s: 0 # arrivals before this are served but not counted
  cool_down_s: 0 # nor those in the last so many seconds
  #  horizon_s: 1h              # stop here; what is unfinished is a miss (default: all end)

results:
  steps: histogram # engine steps as a histogram, or none
  sample_interval_s: 1s # spacing of the time series
"""
