"""The kernel tables without the fp8 matrix multiplications of unaligned sizes.

Measured with one token more than a multiple of 16, an fp8 multiplication takes up to 2.4 times as
long as at the multiple, and longer than with twice the tokens. Batches that are padded to sizes of
CUDA graphs, as decodes are, never have such a size, but prices between rows are interpolated
through them. Whether a batch that is not padded is as slow is not known.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

FP8_ROWS = ("raw", "aligned")
_GEMM_TABLES = "gemm/vllm"


@contextmanager
def aligned_systems(system: str) -> Iterator[str]:
    """A copy of the package's ``systems`` folder whose tables of one GPU lack those rows.

    Dropped are the rows of per-tensor fp8 with ``m > 16`` and ``m % 16 == 1``.

    Args:
        system: the package's name of the GPU, such as ``h100_sxm``.
    """
    source = Path(str(files("aiconfigurator_core"))) / "systems"
    with tempfile.TemporaryDirectory(prefix="fleetsim-") as folder:
        target = Path(folder, "systems")
        shutil.copytree(source, target, ignore=lambda path, _: _others(Path(path), source, system))
        for path in sorted((target / "data" / system / _GEMM_TABLES).rglob("*.parquet")):
            table = pq.read_table(path)
            m = table["m"]
            past = pc.subtract(m, pc.multiply(pc.divide(m, 16), 16))
            unaligned = pc.and_(pc.equal(past, 1), pc.greater(m, 16))
            dropped = pc.and_(pc.equal(table["gemm_dtype"], "fp8"), unaligned)
            pq.write_table(table.filter(pc.invert(dropped)), path)
        yield str(target)


def _others(folder: Path, source: Path, system: str) -> list[str]:
    """What need not be copied: measurements of other GPUs and backends."""
    relative = folder.relative_to(source).parts
    if relative == ("data",):
        return [path.name for path in folder.iterdir() if path.name != system]
    return []
