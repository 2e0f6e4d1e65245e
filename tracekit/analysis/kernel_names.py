"""Names of kernels: family, tensor cores, communication; and names as sentences bear them."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.runs.configuration import patterns
from tracekit.runs.text import shorten, without_namespaces

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt
    import pandas as pd
    import pyarrow as pa

_ANONYMOUS = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|_GLOBAL__N__\w+)(?:::)?")
_LAMBDA = re.compile(r"\{lambda[^{}]*\}")
_VALUE = re.compile(r"(?<=[<,])\s*(?:\([\w: ]+\))?(?:-?\d+[uUlL]*|true|false)\s*(?=[,>])")
_EMPTY_FIRST = re.compile(r"<[,\s]+")
_EMPTY_LATER = re.compile(r",[,\s]*(?=[,>])")
_SUFFIX = re.compile(r"(?:_\d+|_[0-9a-f]{8,}|\.\d+)+$")
_UNNAMED = re.compile(r"^triton_*$")
"""What would remain of the names of kernels that Inductor did not name, which have nothing in common."""
_MANGLED, _SIZE = re.compile(r"^_ZN?K?(?=\d)"), re.compile(r"\d+")
_TEMPLATE = re.compile(r"I(?:L[a-z]\d+E)*([fdijlbc]*)(?:NS\w?_(\d+))?")
_BUILT_IN = {
    "f": "float",
    "d": "double",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "b": "bool",
    "c": "char",
}
"""Codes of types in mangled names."""
_BRACKET = re.compile(r"[<>(]")
_RETURN = re.compile(r"^(?:void|static|__global__)\s+")
_WORD = re.compile(r"\w+")
_LIBRARY = re.compile(r"(?i)gemm|xmma|cudnn|cutlass|nvjet|fmha")
_TILES = re.compile(r"_\d+(?:x\d+)+(?![A-Za-z\d])|(?<!tensor)(?<![\d_])(?<!\dx)\d+(?:x\d+)+(?![A-Za-z\d])")
_TUNED = re.compile(r"(?<=_)(stages?|align[a-d]?|ldg)\d+(?![A-Za-z\d])")
_TENSILE = re.compile(r"((?:^|\b|Custom_)Cijk_\w*?)_MT\d+(?:x\d+)+(_MI\d+(?:x\d+)+)?_\w*$")
"""A matrix product of rocBLAS or hipBLASLt: the problem, its tile, the matrix instruction, its tuning."""
_MATMUL = re.compile(r"^(_?\w*matmul\w*?)_\d+(?:x\d+)+(?:_\w*)?$")
"""A matrix product of Triton: its types, then its tile, its epilogue and its tuning."""
_HASH = re.compile(r"(?<![A-Za-z0-9])(?=[a-z]*\d)([a-z0-9]{8})[a-z0-9]{16,}(?![A-Za-z0-9])")
_BACKWARD = "autograd::engine::evaluate_function: "
BRIEF, LINE, TITLE_WIDTH = 80, 120, 40
"""Maximum width of a name and of a source line in a sentence, and of a name in the title of a finding; tables
show the full text."""
LIBRARIES = {
    "NCCL, RCCL, oneCCL": r"[nr]ccl|oneccl",
    "NVSHMEM, rocSHMEM": r"(?:nv|roc)shmem",
    "collectives by name": r"all_?reduce|reduce_?scatter|all_?gather|all_?to_?all",
    "vLLM, SGLang, AITER: custom all-reduce": r"cross_device_reduce",
    "PyTorch: symmetric memory": r"(?:put|wait)_signal_kernel|\bbarrier_kernel\b",
    "DeepEP": r"\b(?:intranode|internode(?:_ll)?)::\w*(?:dispatch|combine|barrier)",
    "MORI-EP": r"\bEp(?:Dispatch|Combine)(?:Intra|Inter)Node",
    "Transformer Engine: user buffers": r"userbuffers_",
}
"""Patterns of communication kernels by library, as its sources name them."""

ALL_TO_ALL, SEND_RECV = "all_to_all", "send_recv"
COLLECTIVES = {
    "reduce_scatter": r"(?i)reduce_?scatter",
    "all_gather": r"(?i)all_?gather",
    "all_reduce": r"(?i)all_?reduce|cross_device_reduce",
    ALL_TO_ALL: r"(?i)all_?to_?all|node(?:_ll)?::\w*(?:dispatch|combine)|\bEp(?:Dispatch|Combine)",
    "broadcast": r"(?i)broadcast",
    SEND_RECV: r"(?i)send_?recv|(?:send|recv)(?:_|\b)",
    "reduce": r"(?i)cclkernel_reduce_|ccldevkernel_reduce_|^reduce$",
}
"""Patterns of names of communication kernels by collective; the first match counts."""


def read_patterns(folder: Path) -> list[str]:
    """Return the patterns that `[tool.tracekit] communication` adds, from the nearest `pyproject.toml`.

    Raises:
        UnusableInputError: They are not a list of regular expressions.
    """
    return patterns(
        "communication", folder, hint='write, for example, communication = ["my_allreduce_kernel"]'
    )


_ADDED = [f"(?:{pattern})" for pattern in read_patterns(Path.cwd())]
COMMUNICATION = rf"(?i)^(?!triton_(?:poi|per|red|for|tem)_).*?(?:{'|'.join([*LIBRARIES.values(), *_ADDED])})"
"""Names of communication kernels; a kernel of Inductor is named after the ops that it replaced."""
_NO_TENSOR = re.compile(r"(?i)ffma|simt")
_TENSOR = re.compile(
    r"(?i)(?:h|i|s)(?:884|1688|16816|16832|8816)|_(?:884|1688|16816)|[hiq]mma|tensorop|xmma|wgmma|nvjet"
    r"|flash_(?:fwd|bwd|attn)|fmha|mma_(?:sync|tensor)|mfma|xdl|cijk_\w*_mi\d+x\d|igemm_\w*gtcx"
)

PRODUCTS = (
    r"(?i)^(?!.*(?:fprop|[dw]grad|conv|flash|fmha|attn|attention))(?!triton_(?:poi|per|red|for)_)"
    r".*?(?:(?<!fb)gemm|gemv|nvjet|xmma|cutlass(?:_\d|::kernel)|cijk_|matmul|triton_tem\w*mm(?:_|$))"
)
"""Names of kernels of matrix products of all libraries and precisions, without convolutions and attention."""


@lru_cache(maxsize=1 << 16)
def family(name: str) -> str:
    """Return the canonical name of a kernel, which is mostly stable over shapes and recompilations.

    Without return type, parameters, anonymous namespaces, template integers and booleans, and numeric or hash
    suffixes; `{lambda(int)#2}` becomes `{lambda}`; template types stay. In names of the libraries of matrix
    products, convolutions and attention, tile and cluster sizes, stages, alignments and load widths go;
    architecture, types, layout, instruction (`s16816gemm`, `tensor16x8x8`, `MI16x16x1`) and algorithm stay,
    so a library that picks another of those for another shape gives another family.

    Example:
        >>> family("void at::f<4, float, at::g(int)::{lambda(int)#2}>(int, float*)")
        'at::f<float, at::g(int)::{lambda}>'
        >>> family("triton_poi_fused_relu_0"), family("ncclKernel_AllReduce(int)")
        ('triton_poi_fused_relu', 'ncclKernel_AllReduce')
        >>> family("sm80_xmma_gemm_f32f32_tn_n_tilesize32x32x8_stage3_ffma_aligna4_kernel__5x_cublas")
        'sm80_xmma_gemm_f32f32_tn_n_tilesize_stage_ffma_aligna_kernel__5x_cublas'
        >>> family("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT32x32x256_MI16x16x1_SN_LDSB1_WG32_8_1")
        'Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MI16x16x1'
        >>> family("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x128x1_swiglu")
        '_matmul_ogs_NNT_bf16xbf16xmxfp4'
        >>> family("triton__0d1d2d3d")
        'triton__0d1d2d3d'
    """
    short = name if _MANGLED.match(name) else _ANONYMOUS.sub("", name)
    while (simpler := _LAMBDA.sub("<lambda>", short)) != short:
        short = simpler
    short = _RETURN.sub("", _without_parameters(short))
    short = _EMPTY_LATER.sub("", _EMPTY_FIRST.sub("<", _VALUE.sub("", short)))
    if tuned := _TENSILE.search(short):
        return tuned[1] + (tuned[2] or "")
    if tuned := _MATMUL.search(short):
        return tuned[1]
    short = _WORD.sub(_without_tiles, short)
    short = short.replace("<lambda>", "{lambda}").replace("<>", "")
    cut = _SUFFIX.sub("", short.strip())
    return name if not cut or _UNNAMED.search(cut) else cut


def shared_family(name: str) -> str:
    """Return the family by which kernels of two runs are compared: versions of NCCL name theirs differently.

    Example:
        >>> shared_family("ncclKernel_AllReduce(int)")
        'ncclDevKernel_AllReduce'
    """
    return re.sub(r"^ncclKernel_", "ncclDevKernel_", family(name))


def _demangle(name: str) -> str:
    """Return the namespaces and the name of a mangled function, with types at the begin of its template.

    Of these, built-in types are read, and the name of a class. Another name is returned as it is.
    """
    begins = _MANGLED.match(name)
    parts, place = [], begins.end() if begins else len(name)
    while size := _SIZE.match(name, place):
        place = size.end() + int(size[0])
        parts.append(name[size.end() : place])
    if not parts or not all(map(str.isidentifier, parts)):
        return name
    template = _TEMPLATE.match(name, place)
    types = [_BUILT_IN[code] for code in template[1]] if template else []
    if template and template[2]:
        types.append(name[template.end() : template.end() + int(template[2])])
    inside = f"<{', '.join(types)}>" if types else ""
    return "::".join(part for part in parts if not part.startswith("_GLOBAL__N_")) + inside


def shorten_kernel(name: str, width: int) -> str:
    """Shorten the name of a kernel: of a template that is too long keep the begin, else both ends.

    Example:
        >>> shorten_kernel("ck::moe_gemm<ck::GridwiseGemm<ck::RowMajor, float>, ck::Tail>", 32)
        'moe_gemm<GridwiseGemm<…>'
        >>> shorten_kernel("elementwise_kernel<at::native::FillFunctor<int> >", 30)
        'elementwise_kernel<FillFunct…>'
        >>> shorten_kernel("_ZN5cudnn25bn_fw_tr_1C11_kernel_NCHWIffLi512ELb1EEEvT_i", 40)
        'bn_fw_tr_1C11_kernel_NCHW<float, float>'
    """
    name = _demangle(name)
    text = without_namespaces(name)
    base, template, _ = text.partition("<")
    if len(name) <= width or len(text) <= width or not template or len(base) > width - 4:
        return shorten(name, width)
    head = text[: width - 2]
    whole = head[: max(head.rfind("<"), head.rfind(",")) + 1]
    return f"{whole if len(whole) > len(base) + 1 else head}…>"


MAX_SEARCHED = 1 << 14
"""Characters of a name that are searched: the longest recorded names have 5,160, hostile ones megabytes."""


def matches(names: pd.Series, pattern: str) -> pd.Series:
    """Whether each name contains the pattern in what is searched; computed once per distinct name.

    Example:
        >>> import pandas as pd
        >>> matches(pd.Series(["cudaLaunchKernel", "cudaFree"], dtype="category"), "(?i)launch").tolist()
        [True, False]
    """
    import numpy as np
    import pandas as pd

    codes, distinct = names.cat.codes.to_numpy(), names.cat.categories.to_numpy(object)
    occurs = np.zeros(len(distinct) + 1, np.bool_)
    occurs[codes] = True  # rows of one kind have few of all names; a missing one has the last place
    used = np.flatnonzero(occurs[:-1])
    contained = np.zeros(len(occurs), np.bool_)
    contained[used] = search_each(distinct[used].tolist(), pattern)
    return pd.Series(contained[codes], index=names.index, name=names.name)


_MANY_TEXTS = 50  # texts from which Arrow searches faster than Python, including the conversion


def search_each(texts: Sequence[object], pattern: str) -> npt.NDArray[np.bool_]:
    """Whether each text contains the pattern in what is searched.

    Example:
        >>> search_each(["cudaLaunchKernel", "cudaFree"], "(?i)launch")
        array([ True, False])
    """
    return SearchedTexts(texts).containing(pattern)


_MAX_KNOWN = 1 << 16  # texts that a process remembers for each pattern: analyses ask about the same ones


class _Searched(dict[str, bool]):
    """Whether texts contain a pattern in what is searched, found when first asked for."""

    def __init__(self, pattern: str) -> None:
        super().__init__()
        self._search = re.compile(pattern).search

    def __missing__(self, text: str) -> bool:
        found = self[text] = self._search(text, 0, MAX_SEARCHED) is not None
        return found


_searched = lru_cache(maxsize=256)(_Searched)


class SearchedTexts:
    """Texts that are searched for several patterns, for each of them once.

    Attributes:
        texts: The texts.
    """

    def __init__(self, texts: Sequence[object]) -> None:
        self.texts = texts
        self._found: dict[str, npt.NDArray[np.bool_]] = {}

    def containing(self, pattern: str) -> npt.NDArray[np.bool_]:
        """Whether each text contains the pattern in what is searched."""
        if pattern not in self._found:
            found = self._search_lines(pattern)
            self._found[pattern] = self._search(pattern) if found is None else found
        return self._found[pattern]

    def _search(self, pattern: str) -> npt.NDArray[np.bool_]:
        import numpy as np

        known = _searched(pattern)
        if len(known) > _MAX_KNOWN:
            known.clear()
        return np.array([known[str(text)] for text in self.texts], np.bool_)

    def _search_lines(self, pattern: str) -> npt.NDArray[np.bool_] | None:
        """Search all lines at once; None for a pattern that RE2 refuses, such as `(?!...)`."""
        if self._lines is None:
            return None
        import pyarrow as pa
        import pyarrow.compute as pc

        found: npt.NDArray[np.bool_] | None = None
        with suppress(pa.ArrowInvalid):
            found = pc.match_substring_regex(self._lines, pattern).to_numpy(zero_copy_only=False)
        return found

    @cached_property
    def _lines(self) -> pa.Array | None:
        """Many texts as lines of ASCII, in which RE2 finds the same as Python; None for others."""
        if len(self.texts) < _MANY_TEXTS:
            return None
        import pyarrow as pa

        lines = list(map(str, self.texts))
        joined = "".join(lines)
        is_plain = joined.isascii() and "\n" not in joined and max(map(len, lines)) <= MAX_SEARCHED
        return pa.array(lines) if is_plain else None


def brief(name: str, width: int = BRIEF) -> str:
    """Shorten the name of an op, call or line for a sentence: cut hashes, then the middle.

    Example:
        >>> brief("## Call CompiledFxGraph fem7v7a2b5fjalpsipmt7chafxehmuzyg4pkbzkcld55pbzr5553 ##")
        '## Call CompiledFxGraph fem7v7a2… ##'
        >>> brief("autograd::engine::evaluate_function: MulBackward0"), len(brief("x" * 900))
        ('MulBackward0', 80)
    """
    return shorten(_HASH.sub(r"\1…", name.removeprefix(_BACKWARD)), width)


def _without_tiles(word: re.Match[str]) -> str:
    """Return a library kernel's name without the parameters chosen by autotuning or heuristics."""
    if not _LIBRARY.search(word[0]):
        return word[0]
    return _TUNED.sub(r"\1", _TILES.sub("", word[0]))


def _without_parameters(name: str) -> str:
    """Cut at the first parenthesis outside of template arguments that is not `operator()`."""
    depth = 0
    for bracket in _BRACKET.finditer(name):
        place = bracket.start()
        if bracket[0] == "<":
            depth += 1
        elif bracket[0] == ">":
            depth -= not name.endswith("-", 0, place)
        elif depth <= 0 and place and not name.endswith("operator", 0, place):
            return name[:place]
    return name


@lru_cache(maxsize=1 << 16)
def uses_tensor_cores(name: str) -> bool:
    """Whether the name says that tensor or matrix cores are used; silence of a name is no proof.

    A name with `ffma` or `simt` says that they are not, whatever library it comes from.

    Example:
        >>> uses_tensor_cores("sm80_xmma_gemm_f16f16"), uses_tensor_cores("ampere_sgemm_128x64_tn")
        (True, False)
    """
    searched = name[:MAX_SEARCHED]
    return not _NO_TENSOR.search(searched) and bool(_TENSOR.search(searched))
