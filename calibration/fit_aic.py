"""Makes the shipped profiles: ``python -m fleetsim.calibration.fit_aic --all --jobs 2``.

Each is fitted to the measured vLLM kernel tables of ``aiconfigurator-core`` (an extra) on batches
drawn from a seed, and scored on batches drawn after them. The same version of that package and
of this code writes the same bytes, whatever the number of jobs.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from fleetsim.calibration.fp8_rows import FP8_ROWS
from fleetsim.calibration.from_aic import fit_profile
from fleetsim.calibration.library import load_profile
from fleetsim.calibration.profile import Profile
from fleetsim.calibration.served import LEAST_KV_TOKENS, NAMES, find_recipe
from fleetsim.traces.errors import InputError


def make_profile(name: str, fp8_rows: str = "raw") -> Profile:
    """Fits one of the shipped profiles from the installed kernel tables.

    Args:
        name: of the profile.
        fp8_rows: ``aligned`` to leave fp8 multiplications of unaligned sizes out, which the
            shipped ones do not; other precisions have none.

    Raises:
        InputError: the name is unknown, its KV cache is too small to ship, or the extra is not
            installed.
    """
    served = find_recipe(name)
    if served.precision == "fp8":
        served = replace(served, fp8_rows=fp8_rows)
    profile = fit_profile(served, name, "python -m fleetsim.calibration.fit_aic")
    kv_tokens = profile.kv_blocks() * profile.engine_defaults.block_size
    if kv_tokens < LEAST_KV_TOKENS:
        raise InputError(
            f"{name}: its KV cache has {kv_tokens:,} tokens; only profiles with "
            f"{LEAST_KV_TOKENS:,} or more are shipped"
        )
    return profile


def make_profiles(names: Sequence[str], jobs: int, fp8_rows: str = "raw") -> Iterator[Profile]:
    """Fits shipped profiles, in the order of their names, on that many processes."""
    make = partial(make_profile, fp8_rows=fp8_rows)
    if jobs == 1:
        yield from map(make, names)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(make, names)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns its exit code, 2 for wrong input."""
    parser = argparse.ArgumentParser(prog="fleetsim.calibration.fit_aic", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--profile", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    which.add_argument("--all", action="store_true", help="all of them")
    which.add_argument(
        "--table", action="store_true", help="none: only print the table of docs/profiles.md"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes to fit on (default: 1)")
    parser.add_argument(
        "--fp8-rows",
        choices=FP8_ROWS,
        default="raw",
        help="aligned: without fp8 multiplications of sizes just above a multiple of 16",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(__file__).parent / "profiles",
        help="folder to write NAME.json to (default: the package's own profiles)",
    )
    chosen = parser.parse_args(arguments)
    if chosen.table:
        print(_TABLE_HEAD)
        for name in NAMES:
            print(table_row(load_profile(name)))
        return 0
    try:
        if not chosen.out.is_dir():
            raise InputError(f"--out {chosen.out}: is not a folder")
        if chosen.jobs < 1:
            raise InputError(f"--jobs {chosen.jobs}: must be at least 1")
        names = NAMES if chosen.all else (chosen.profile,)
        for profile in make_profiles(names, chosen.jobs, chosen.fp8_rows):
            path = chosen.out / f"{profile.name}.json"
            path.write_text(profile.to_json(), encoding="utf-8")
            print(table_row(profile), flush=True)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


_TABLE_HEAD = "| profile | median | p95 | worst | KV blocks |\n|---|---|---|---|---|"


def table_row(profile: Profile) -> str:
    """A profile's errors and KV blocks as a row of a table in Markdown."""
    if profile.fit_error is None:
        raise InputError(f"{profile.name}: was not fitted, so its error is not known")
    error = profile.fit_error.unseen
    shares = " | ".join(f"{100 * e:.1f} %" for e in (error.median, error.p95, error.worst))
    return f"| {profile.name} | {shares} | {profile.kv_blocks():,} |"


if __name__ == "__main__":
    sys.exit(main())
