"""Makes the shipped profiles: ``python -m fleetsim.calibration.fit_aic --all``.

Each is fitted to the measured vLLM kernel tables of ``aiconfigurator-core`` (an extra) on batches
drawn from a seed, and scored on batches drawn after them. The same version of that package and
of this code writes the same bytes.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fleetsim.calibration.from_aic import fit_profile
from fleetsim.calibration.profile import Profile
from fleetsim.calibration.recipes import NAMES, find_recipe
from fleetsim.traces.errors import InputError


def make_profile(name: str) -> Profile:
    """Fits one of the shipped profiles from the installed kernel tables.

    Raises:
        InputError: the name is unknown, or the extra is not installed.
    """
    served, gpu_key = find_recipe(name)
    return fit_profile(served, gpu_key, name, "python -m fleetsim.calibration.fit_aic")


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
