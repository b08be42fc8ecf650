"""Where a run's result goes."""

from pathlib import Path

RUNS = Path("runs")


def result_folder(out: Path | None, name: str, seed: int) -> Path:
    """The folder that --out names, or the first free `runs/NAME-SEED`, `runs/NAME-SEED-2`, ...

    Raises:
        InputError: --out names a file, or a folder that is not empty.
    """
    from fleetsim.traces.errors import InputError

    if out is None:
        folder = RUNS / f"{name}-{seed}"
        number = 1
        while folder.exists():
            number += 1
            folder = RUNS / f"{name}-{seed}-{number}"
        return folder
    if out.is_dir():
        if any(out.iterdir()):
            raise InputError(f"{out}: is not empty; give --out a new folder, or remove this one")
    elif out.exists():
        raise InputError(f"{out}: is a file; give --out a new folder")
    return out
