"""Whether a measured run and a profile are of the same model, GPU and engine, by their names.

Names are written in many ways, so only what surely differs is refused: another number in the GPU's
name (H100, 4090), another size in the model's (8B, 70B), another number of GPUs. What may differ is
remarked.
"""

import re

from fleetsim.calibration.profile import Profile
from fleetsim.sim.backtest.measured_run import MeasuredRun
from fleetsim.traces.errors import InputError

_NO_MODEL = re.compile(r"\d+(gb|gib|g)$|^(hbm|sxm|pcie)\d")
_SIZE = re.compile(r"\d+(?:\.\d+)?[bm]")
_VERSION = re.compile(r"\d+\.\d+")


def origin_remarks(run: MeasuredRun, profile: Profile) -> list[str]:
    """What a reader must know of the names.

    Raises:
        InputError: the run is of another GPU, model size or number of GPUs.
    """
    origin, of = run.origin, f"but profile {profile.name} is of"
    if origin.gpu is not None and _differ(_gpu(origin.gpu), _gpu(profile.gpu.name)):
        raise InputError(
            f"{run.path}: was measured on {origin.gpu}, {of} {profile.gpu.name}; take that GPU's"
        )
    size = origin.tensor_parallel_size
    if size is not None and size != profile.gpus_per_replica:
        raise InputError(
            f"{run.path}: was measured on tensor_parallel_size {size}, {of} "
            f"{profile.gpus_per_replica} GPUs"
        )
    remarks = []
    if origin.model is not None:
        sizes = _sizes(origin.model), _sizes(profile.model.hf_id) | _sizes(profile.model.name)
        if _differ(*sizes):
            raise InputError(
                f"{run.path}: was measured with {origin.model}, {of} {profile.model.name}"
            )
        if not _same_model(origin.model, profile):
            remarks.append(
                f"the run calls its model {origin.model!r}, the profile {profile.model.hf_id!r}; "
                "make sure that they are the same"
            )
    if origin.engine_version is not None:
        ours = {
            "host work": " ".join(record.engine_version for record in profile.host_work),
            "step costs": f"{profile.provenance.source_version} {profile.provenance.kernel_tables}",
        }
        theirs = _VERSION.findall(origin.engine_version)[:1]
        for what, text in ours.items():
            named = re.findall(r"vLLM (\d+\.\d+)", text)
            if theirs and named and theirs[0] not in named:
                remarks.append(
                    f"the run's engine is vLLM {origin.engine_version}; the profile's {what} are "
                    f"of vLLM {', '.join(dict.fromkeys(named))}"
                )
    return remarks


def _differ(one: set[str], other: set[str]) -> bool:
    """Whether both say something, and nothing alike."""
    return bool(one) and bool(other) and not one & other


def _gpu(name: str) -> set[str]:
    """Words with a digit, but for memory and socket: ``{"h100"}``, ``{"4090"}``, ``{"cpu"}``."""
    words = re.findall(r"[a-z]*\d+[a-z]*|cpu", name.lower().replace("rtx", " "))
    return {word for word in words if not _NO_MODEL.search(word)}


def _sizes(name: str) -> set[str]:
    """Such as ``{"8b"}``, of the last part of a model's name."""
    return set(_SIZE.findall(name.rsplit("/", 1)[-1].lower()))


def _same_model(name: str, profile: Profile) -> bool:
    def bare(text: str) -> str:
        return re.sub(r"^meta|[^a-z0-9]|instruct$", "", text.rsplit("/", 1)[-1].lower())

    return bare(name) in (bare(profile.model.hf_id), bare(profile.model.name))
