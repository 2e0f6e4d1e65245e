"""Names of kernels: the family a kernel belongs to, and whether it uses tensor cores."""

from __future__ import annotations

import re

_ANONYMOUS = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|_GLOBAL__N__\w+)(?:::)?")
_LAMBDA = re.compile(r"\{lambda[^{}]*\}")
_VALUE = re.compile(r"(?<=[<,])\s*(?:\([\w ]+\))?(?:-?\d+[uUlL]*|true|false)\s*(?=[,>])")
_EMPTY_FIRST = re.compile(r"<[,\s]+")
_EMPTY_LATER = re.compile(r",[,\s]*(?=[,>])")
_SUFFIX = re.compile(r"(?:_\d+|_[0-9a-f]{8,}|\.\d+)+$")
_RETURN = re.compile(r"^(?:void|static|__global__)\s+")
_TENSOR = re.compile(
    r"(?i)(?:h|i|s)(?:884|1688|16816|16832|8816)|_(?:884|1688|16816)|[hiq]mma|tensorop|xmma|wgmma|nvjet"
    r"|flash_(?:fwd|bwd|attn)|fmha|mma_(?:sync|tensor)"
)


def family(name: str) -> str:
    """The canonical name of a kernel: what stays the same between shapes, versions and recompilations.

    Without return type, parameters, anonymous namespaces, template integers and booleans, and numeric or hash
    suffixes; `{lambda(int)#2}` becomes `{lambda}`; template types stay.

    Example:
        >>> family("void at::f<4, float, at::g(int)::{lambda(int)#2}>(int, float*)")
        'at::f<float, at::g(int)::{lambda}>'
        >>> family("triton_poi_fused_relu_0"), family("ncclKernel_AllReduce(int)")
        ('triton_poi_fused_relu', 'ncclDevKernel_AllReduce')
    """
    short = _ANONYMOUS.sub("", name)
    while (simpler := _LAMBDA.sub("<lambda>", short)) != short:
        short = simpler
    short = _RETURN.sub("", _without_parameters(short))
    short = _EMPTY_LATER.sub("", _EMPTY_FIRST.sub("<", _VALUE.sub("", short)))
    short = short.replace("<lambda>", "{lambda}").replace("<>", "")
    short = re.sub(r"^ncclKernel_", "ncclDevKernel_", short.strip())
    return _SUFFIX.sub("", short) or name


def _without_parameters(name: str) -> str:
    """Cut at the first parenthesis outside of template arguments that is not `operator()`."""
    depth = 0
    for place, letter in enumerate(name):
        if letter == "<":
            depth += 1
        elif letter == ">" and not name[:place].endswith("-"):
            depth -= 1
        elif letter == "(" and depth <= 0 and place and not name[:place].endswith("operator"):
            return name[:place]
    return name


def uses_tensor_cores(name: str) -> bool:
    """Whether the name says that tensor cores are used; silence of a name is no proof.

    Example:
        >>> uses_tensor_cores("sm80_xmma_gemm_f16f16"), uses_tensor_cores("ampere_sgemm_128x64_tn")
        (True, False)
    """
    return bool(_TENSOR.search(name))
