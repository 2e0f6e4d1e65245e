"""Published numbers for comparison; nothing is computed from them."""

from __future__ import annotations

from dataclasses import dataclass

TORCHBENCH = "TorchBench (Hao et al., 2023)"
REPORT = "a student report on PyTorch's CUDA performance"
CURVES = "Levental and Orlova, When they go high we go low"


@dataclass(frozen=True)
class Breakdown:
    """Time shares of a domain: active, data movement, idle."""

    active: float
    movement: float
    idle: float


DOMAINS = {
    ("vision", "train"): Breakdown(0.531, 0.021, 0.448),
    ("language", "train"): Breakdown(0.849, 0.013, 0.138),
    ("recommendation", "train"): Breakdown(0.754, 0.004, 0.242),
    ("rl", "train"): Breakdown(0.102, 0.050, 0.848),
    ("speech", "train"): Breakdown(0.288, 0.003, 0.709),
    ("vision", "infer"): Breakdown(0.628, 0.014, 0.357),
    ("language", "infer"): Breakdown(0.647, 0.008, 0.345),
    ("recommendation", "infer"): Breakdown(0.514, 0.001, 0.485),
    ("rl", "infer"): Breakdown(0.193, 0.084, 0.723),
    ("speech", "infer"): Breakdown(0.503, 0.003, 0.494),
}
"""Table 2 of TorchBench, on an A100."""
OVERALL_ACTIVE = {"train": 0.568, "infer": 0.554}
"""Of all its models."""
COMPILED_SPEEDUP = {"train": 1.30, "infer": 1.46}
"""Geometric mean of eager over compiled time, Fig. 3 and 4."""
COMPILED_HOST = {"train": 0.29, "infer": 0.29}
"""Compiled over eager memory of the host: 71% less."""
COMPILED_DEVICE = {"train": 1.31, "infer": 1.51}
"""Compiled over eager memory of the device: 31% and 51% more."""
FIXES = {"offload": 10.1, "scalar copy": 27.0}
"""Speedups of single fixes: of a model (pig2), and of one function (hf_Reformer)."""
EPOCH_S = {("cpu", "all"): 14.78, ("cpu", "1"): 24.08, ("cuda", "all"): 8.78, ("cuda", "1"): 9.53}
"""One epoch of MNIST by device and threads, seconds, of the report's Table 2."""
