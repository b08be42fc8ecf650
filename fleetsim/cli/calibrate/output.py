"""How the calibration commands write and describe a profile."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from fleetsim.calibration.profile import Profile


def write_profile(profile: "Profile", out: Path) -> None:
    """Write the profile's file whole or not at all, and say where it is.

    Raises:
        InputError: ``out`` is a folder, or in one that does not exist.
    """
    from fleetsim.traces.errors import InputError

    if out.is_dir():
        raise InputError(f"--out {out}: is a folder; give a file such as {out / 'profile.json'}")
    if not out.parent.is_dir():
        raise InputError(f"--out {out}: the folder {out.parent} does not exist")
    half_written = out.with_name(f".{out.name}.tmp")
    try:
        half_written.write_text(profile.to_json(), encoding="utf-8")
        half_written.replace(out)
    finally:
        half_written.unlink(missing_ok=True)
    typer.echo(f"fleetsim: profile in {out}", err=True)


def fit_lines(profile: "Profile") -> list[str]:
    """The error of the fit, region by region, as text."""
    error = profile.fit_error
    if error is None:
        return []
    rows = {"all": error.unseen, **error.by_region}
    return [
        f"{profile.name}: {profile.model.name} on {profile.gpu.name}",
        f"fitted to {error.fitted_batches:,} steps; error on {error.unseen.batches:,} others:",
        *(
            f"  {name:8} {row.batches:7,} steps  median {row.median:6.1%}  p95 {row.p95:6.1%}"
            f"  worst {row.worst:6.1%}"
            for name, row in rows.items()
        ),
    ]
