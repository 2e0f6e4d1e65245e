"""Steps of inference servers: phase, requests and tokens from the names of their ranges.

| engine | name of the range |
|---|---|
| vLLM | `execute_context_2(6144)_generation_3(3)`: requests (tokens) of both kinds |
| vLLM, SGLang, detailed annotations | `execute_6147_context_2(sq6144sk7144…)_generation_3(sq3sk6144…)` |
| SGLang | `step[EXTEND bs=2 toks=6144]`, `step[DECODE bs=64]`, `step[MIXED bs=2 c=1 g=1 c_sq=5 … g_sq=1 …]` |
| TensorRT-LLM | `[Executor] _forward_step 7: 2 ctx reqs, 6144 ctx tokens, 3 gen reqs`, or without tokens |

What a name does not say is unknown, with two exceptions: no requests of a kind process no tokens, and a
request that generates processes one, unless the trace has steps of SGLang's speculative decoding, whose
drafts are not counted in the names.

Source: `annotate_profile` in vllm/v1/worker/gpu_worker.py, `build_step_span_name` in
sglang/srt/utils/profile_utils.py, `_forward_step` in tensorrt_llm/_torch/pyexecutor/py_executor.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import structs

from tracekit.errors import UnusableInputError
from tracekit.ingest.spool.rows import NONE, compact, numbers
from tracekit.runs.configuration import patterns
from tracekit.schema import SERVING, STEPS, C, Column, ServingPhase

_TOKENS = "tokens"
"""Group of a pattern for the tokens of a step of one phase."""


def _number(group: str) -> str:
    return rf"(?P<{group}>\d{{1,18}})"


_PROMPTS, _GENERATING = _number(C.CONTEXT_REQUESTS), _number(C.GENERATION_REQUESTS)
_READ, _WRITTEN = _number(C.CONTEXT_TOKENS), _number(C.GENERATION_TOKENS)
_SUMS = r"sk\d+sqsq\d+sqsk\d+"
_STEP = rf"{_number(C.STEP)}: {_PROMPTS} ctx reqs(?:, {_READ} ctx tokens)?, {_GENERATING} gen reqs"
_SIZE = rf"bs={_number(C.REQUESTS)}"
BUILT_IN: Final = (
    rf"execute_context_{_PROMPTS}\({_READ}\)_generation_{_GENERATING}\({_WRITTEN}\)$",
    rf"execute_\d+_context_{_PROMPTS}\(sq{_READ}{_SUMS}\)_generation_{_GENERATING}\(sq{_WRITTEN}{_SUMS}\)$",
    rf"step\[(?P<{C.PHASE}>TARGET_VERIFY) {_SIZE}(?:[^\]]*? c_sq={_number(_TOKENS)})?\b[^\]]*\]$",
    rf"step\[(?P<{C.PHASE}>[A-Z_\d]+) {_SIZE}(?: toks={_number(_TOKENS)})?(?: c={_PROMPTS} g={_GENERATING})?"
    rf"(?:[^\]]*? c_sq={_READ})?(?:[^\]]*? g_sq={_WRITTEN})?\b[^\]]*\]$",
    rf"\[Executor\] _forward_step {_STEP}",
)
_PHASES: Final = {
    **dict.fromkeys(("prefill", "context", "ctx", "extend", "split_prefill"), ServingPhase.PREFILL),
    **dict.fromkeys(("decode", "generation", "gen", "target_verify"), ServingPhase.DECODE),
    "mixed": ServingPhase.MIXED,
}
_SPECULATIVE: Final = ("step[TARGET_VERIFY ", "step[DRAFT_EXTEND")
_SIDES: Final = ((C.CONTEXT_REQUESTS, C.CONTEXT_TOKENS), (C.GENERATION_REQUESTS, C.GENERATION_TOKENS))
_GROUPS: Final = {C.PHASE, C.STEP, C.REQUESTS, _TOKENS, *(name for side in _SIDES for name in side)}
_SERVING: Final = re.compile(SERVING)
_MAX_DIGITS = 18
"""Most digits of a number that fits into 64 bits."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What the name of a range says of its step; None where it does not say.

    Attributes:
        step: Number of the step.
        phase: Prefill, decode or mixed.
        requests: Requests of the step, its batch size.
        context_requests: Requests whose prompt is processed.
        generation_requests: Requests that generate.
        context_tokens: Tokens of the former.
        generation_tokens: Tokens of the latter.
    """

    step: int | None = None
    phase: ServingPhase | None = None
    requests: int | None = None
    context_requests: int | None = None
    generation_requests: int | None = None
    context_tokens: int | None = None
    generation_tokens: int | None = None


def read_patterns(folder: Path) -> tuple[str, ...]:
    """Return the patterns that `[tool.tracekit] serving` adds, from the nearest `pyproject.toml`.

    Args:
        folder: Where to begin; its parents are searched too.

    Raises:
        UnusableInputError: They are not a list of regular expressions with the groups of this module.
    """
    hint = r"write, for example, serving = ['(?P<phase>prefill|decode)\[bs=(?P<requests>\d+)']"
    added = patterns("serving", folder, hint=hint)
    for pattern in added:
        groups = re.compile(pattern).groupindex.keys()
        if not groups or groups - _GROUPS:
            raise UnusableInputError(
                f"`serving` in [tool.tracekit]: the named groups of {pattern!r} are "
                f"{', '.join(sorted(groups)) or 'missing'}; known are {', '.join(sorted(_GROUPS))}",
                hint=hint,
            )
    return tuple(added)


def read(name: str, added: tuple[str, ...] = ()) -> Batch | None:
    r"""Return what the name of a range says of its step; None if it marks none.

    Args:
        name: The name.
        added: Patterns of the project, which come first.

    Example:
        >>> read("step[EXTEND bs=15 toks=15360]").context_tokens
        15360
        >>> read("prefill: 3 requests", (r"(?P<phase>prefill): (?P<requests>\d+)",)).context_requests
        3
        >>> read("capture_32_DECODE")
    """
    tried = (*added, *BUILT_IN) if _SERVING.match(name) else added
    for pattern in tried:
        match = _compiled(pattern).match(name)
        if match:
            return _batch(match.groupdict())
    return None


_compiled = cache(re.compile)


def _batch(groups: dict[str, Any]) -> Batch:
    phase = _PHASES.get((groups.pop(C.PHASE, None) or "").lower())
    fitting = {name: text for name, text in groups.items() if text and len(text) <= _MAX_DIGITS}
    numbers = {name: int(text) for name, text in fitting.items() if text.isdecimal()}
    requests, tokens = numbers.pop(C.REQUESTS, None), numbers.pop(_TOKENS, None)
    (prompts, read_), (generating, written) = (tuple(map(numbers.get, side)) for side in _SIDES)
    if phase is ServingPhase.PREFILL:
        prompts, read_, generating = _or(prompts, requests), _or(read_, tokens), _or(generating, 0)
    elif phase is ServingPhase.DECODE:
        generating, written, prompts = _or(generating, requests), _or(written, tokens), _or(prompts, 0)
    both = None if prompts is None or generating is None else (prompts, generating)
    return Batch(
        step=numbers.get(C.STEP),
        phase=phase or _phase(*both or (0, 0)),
        requests=_or(requests, both and sum(both)),
        context_requests=prompts,
        generation_requests=generating,
        context_tokens=0 if prompts == 0 else read_,
        generation_tokens=0 if generating == 0 else written,
    )


def _or(stated: int | None, otherwise: int | None) -> int | None:
    return otherwise if stated is None else stated


def _phase(prompts: int, generating: int) -> ServingPhase | None:
    if prompts and generating:
        return ServingPhase.MIXED
    if prompts:
        return ServingPhase.PREFILL
    return ServingPhase.DECODE if generating else None


def read_steps(names: Sequence[str], added: tuple[str, ...]) -> list[Batch]:
    """Return what the names of all steps of a trace say.

    Args:
        names: Names that mark steps.
        added: Patterns of the project.
    """
    batches = {name: read(name, added) or Batch() for name in set(names)}
    if not any(name.startswith(_SPECULATIVE) for name in batches):
        for name, batch in batches.items():  # each request that generates processes one token
            tokens = _or(batch.generation_tokens, batch.generation_requests)
            batches[name] = structs.replace(batch, generation_tokens=tokens)
    return [batches[name] for name in names]


def columns(batches: Sequence[Batch], count: int) -> dict[str, pa.Array]:
    """Return the columns of `steps` that describe batches; null if there are none.

    Args:
        batches: A batch per step, or none.
        count: Number of steps.
    """
    described = [column for column in STEPS.columns if column.nullable]
    return {column.name: _column(column, batches, count) for column in described}


def _column(column: Column, batches: Sequence[Batch], count: int) -> pa.Array:
    if not batches:
        return pa.nulls(count, column.type)
    values = [getattr(batch, column.name) for batch in batches]
    if column.is_text:
        distinct = sorted({value for value in values if value is not None})
        codes = [NONE if value is None else distinct.index(value) for value in values]
        return compact(np.array(codes), [value.encode() for value in distinct])
    missing = np.array([value is None for value in values])
    return numbers(np.array([NONE if value is None else value for value in values], np.int64), missing)
