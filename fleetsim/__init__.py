"""fleetsim: what would users have felt, and what would it have cost, on another fleet?"""

from pathlib import Path

# In a checkout the rooms sim/, policies/, traces/ and calibration/ lie beside this folder, not
# in it; this lets `python -m pytest` and a plain `import fleetsim` from the root find them.
if (Path(__file__).parent.parent / "sim" / "engine").is_dir():
    __path__.append(str(Path(__file__).parent.parent))

__version__ = "0.1.0"
