"""The package as a user gets it: a wheel, installed outside the checkout, checked there.

An editable install finds every file of the checkout and so hides what pyproject.toml forgot, and
mypy run on a checkout whose folders are mapped to package names sees only a part of it. Here the
wheel must hold every file of the rooms, mypy must have looked at every module, and the command
must run.
"""

import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv-types"
BIN = VENV / "bin"
# folder of the checkout -> package
ROOMS = {
    "fleetsim": "fleetsim",
    "sim": "fleetsim/sim",
    "policies": "fleetsim/policies",
    "traces": "fleetsim/traces",
    "calibration": "fleetsim/calibration",
}


def files_of_the_rooms() -> set[str]:
    """Every file of the checkout that belongs into the package, by its place there."""
    return {
        str(Path(package) / path.relative_to(ROOT / room))
        for room, package in ROOMS.items()
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def build_wheel() -> Path:
    """A wheel of the checkout, without what an earlier build left behind."""
    for stale in ("build", "dist"):
        shutil.rmtree(ROOT / stale, ignore_errors=True)
    pip(Path(sys.executable), "wheel", "--no-deps", "--wheel-dir", str(ROOT / "dist"), str(ROOT))
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    (wheel,) = (ROOT / "dist").glob("fleetsim-*.whl")
    return wheel


def install(wheel: Path) -> None:
    """Put the wheel and the tools into an environment of their own."""
    if not (BIN / "python").exists():
        venv.create(VENV, with_pip=True)
    pip(BIN / "python", "install", f"{wheel}[dev]")
    pip(BIN / "python", "install", "--no-deps", "--force-reinstall", str(wheel))


def pip(python: Path, *arguments: str) -> None:
    """Run pip quietly; it says what went wrong by itself."""
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True)


def check_content(wheel: Path) -> int:
    """The wheel holds the rooms, all of them and nothing else; returns how many modules."""
    expected = files_of_the_rooms()
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    if expected != held:
        for name in sorted(expected - held):
            print(f"{name}: is not in the wheel; see [tool.setuptools] in pyproject.toml")
        for name in sorted(held - expected):
            print(f"{name}: is in the wheel but not in the checkout")
        sys.exit(1)
    return sum(name.endswith(".py") for name in held)


def check_types(modules: int) -> None:
    """Mypy is content with the installed package and has seen every module."""
    command = [str(BIN / "mypy"), "--config-file", str(ROOT / "pyproject.toml"), "-p", "fleetsim"]
    done = subprocess.run(command, cwd=VENV, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="")
    if done.returncode:
        sys.exit(done.returncode)
    found = re.search(r"no issues found in (\d+) source files", done.stdout)
    if found is None or int(found[1]) != modules:
        sys.exit(f"mypy looked at {found and found[1]} files; the package has {modules} modules")


def check_command() -> None:
    """The installed command replays the bundled sample."""
    out = VENV / "smoke"
    shutil.rmtree(out, ignore_errors=True)
    command = [str(BIN / "fleetsim"), "run", "--set", "workload.head=100", "--out", str(out)]
    subprocess.run(command, cwd=VENV, check=True, stdout=subprocess.DEVNULL)
    print(f"{BIN.relative_to(ROOT) / 'fleetsim'} runs outside the checkout")


def main() -> None:
    """Build, install, check."""
    wheel = build_wheel()
    install(wheel)
    modules = check_content(wheel)
    print(f"{wheel.name}: all files of the checkout's rooms, {modules} modules")
    check_types(modules)
    check_command()


if __name__ == "__main__":
    main()
