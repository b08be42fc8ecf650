"""Makes the shipped profiles: ``python -m fleetsim.calibration.fit_aic --all``.

Each is fitted to the measured vLLM kernel tables of ``aiconfigurator-core`` (an extra) on batches
drawn from a seed, and scored on batches drawn after them. The same version of that package and
of this code writes the same bytes.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fleetsim.calibration import aic
from fleetsim.calibration.batches import draw_batches
from fleetsim.calibration.fit import fit_step_cost, score
from fleetsim.calibration.memory import EngineSettings
from fleetsim.calibration.profile import Gpu, Memory, Model, Profile, Provenance, Validity
from fleetsim.calibration.recipes import (
    API_SERVER,
    CUDA_GRAPH_BYTES,
    GPUS,
    HOST_WORK,
    MEMORY_SOURCE,
    NAMES,
    RUNTIME_BYTES,
    SCHEDULER,
    find_recipe,
)
from fleetsim.traces.errors import InputError

SEED = 20240
FITTED_PER_REGION = 1200
UNSEEN_PER_REGION = 800


def make_profile(name: str) -> Profile:
    """Fits one of the shipped profiles from the installed kernel tables.

    Raises:
        InputError: the name is unknown, or the extra is not installed.
    """
    served, gpu_key = find_recipe(name)
    system, gpu = GPUS[gpu_key]
    tp = served.tensor_parallel_size
    prices = aic.AicPrices(served.hf_id, system, tp, served.weight_dtype)
    model = prices.model(served.model_name)
    bounds = _bounds(gpu, model, tp)
    rng = np.random.default_rng(SEED)
    fitted = draw_batches(rng, FITTED_PER_REGION, bounds)
    unseen = draw_batches(rng, UNSEEN_PER_REGION, bounds)
    step_cost = fit_step_cost(fitted, prices.price_s(fitted))
    return Profile(
        name=name,
        model=model,
        gpu=gpu,
        gpus_per_replica=tp,
        precision=served.precision,
        kv_cache_dtype="bfloat16",
        engine_name="vllm",
        engine_defaults=EngineSettings(tensor_parallel_size=tp),
        step_cost=step_cost,
        host_work=HOST_WORK,
        api_server=API_SERVER,
        memory=Memory(
            shards=prices.shards(),
            cuda_graph_bytes=CUDA_GRAPH_BYTES,
            runtime_bytes=RUNTIME_BYTES,
            source=MEMORY_SOURCE,
        ),
        provenance=Provenance(
            source_package=aic.PACKAGE,
            source_version=aic.package_version(),
            kernel_tables=f"vLLM {aic.TABLES_VERSION} on {gpu.name}",
            scheduler=SCHEDULER,
            validation_runs="none yet",
            fitted_by="python -m fleetsim.calibration.fit_aic",
            seed=SEED,
            remarks=served.remarks,
        ),
        fit_error=score(step_cost, len(fitted), unseen, prices.price_s(unseen)),
        validity=bounds,
    )


def _bounds(gpu: Gpu, model: Model, tensor_parallel_size: int) -> Validity:
    """The largest steps to fit: twice vLLM's token budget, and KV in all memory but weights."""
    kv_bytes = 4 * model.num_layers * model.num_kv_heads * model.head_dim
    free_bytes = gpu.hbm_bytes * tensor_parallel_size - model.weights_bytes
    return Validity(
        max_decodes=1024,
        max_step_tokens=16_384,
        max_context_tokens=model.max_context_tokens,
        max_kv_tokens=free_bytes // kv_bytes,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns its exit code, 2 for wrong input."""
    parser = argparse.ArgumentParser(prog="fleetsim.calibration.fit_aic", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--profile", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    which.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parent / "profiles",
        help="folder to write NAME.json to (default: the package's own profiles)",
    )
    chosen = parser.parse_args(arguments)
    # The package warns of tables for other models' attention, which these do not use.
    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)
    try:
        if not chosen.out.is_dir():
            raise InputError(f"--out {chosen.out}: is not a folder")
        for name in NAMES if chosen.all else (chosen.profile,):
            profile = make_profile(name)
            (chosen.out / f"{name}.json").write_text(profile.to_json(), encoding="utf-8")
            print(_one_line(profile))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _one_line(profile: Profile) -> str:
    if profile.fit_error is None:
        return profile.name
    error = profile.fit_error.unseen
    return (
        f"{profile.name}: error on {error.batches} unseen batches: median {error.median:.1%}, "
        f"p95 {error.p95:.1%}, worst {error.worst:.1%}; {profile.kv_blocks()} KV blocks"
    )


if __name__ == "__main__":
    sys.exit(main())
