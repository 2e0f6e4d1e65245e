"""Steps of inference servers: phase, requests and tokens from the names of their ranges.

| engine | name of the range |
|---|---|
| vLLM | `execute_context_2(6144)_generation_3(3)`: requests (tokens) of both kinds |
| vLLM, SGLang, detailed annotations | `execute_6147_context_2(sq6144sk7144…)_generation_3(sq3sk6144…)` |
| SGLang | `step[EXTEND bs=2 toks=6144]`, `step[DECODE bs=64]`, `step[MIXED bs=2 c=1 g=1 c_sq=5 … g_sq=1 …]` |
| TensorRT-LLM | `[Executor] _forward_step 7: 2 ctx reqs, 6144 ctx tokens, 3 gen reqs`, or without tokens |

A range is an interval that the engine marked on the host; each of its requests is either in its prefill, when
its prompt (the *context*) is processed, or generates. `sq` and `sk` are the sums of the query and key lengths
of the requests, `sqsq` and `sqsk` those of their products; only `sq`, the tokens processed, is used.

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
from tracekit.runs.range_names import SERVING
from tracekit.schema import STEPS, C, Column, ServingPhase

_MAX_DIGITS = 18  # maximum digits of a number: one of 19 may not fit into a signed integer of 64 bits
_TOKENS = "tokens"  # group of a pattern for the tokens of a step of one phase


def _number(group: str) -> str:
    """Return the pattern of a number that a named group captures."""
    return rf"(?P<{group}>\d{{1,{_MAX_DIGITS}}})"


_CONTEXT, _GENERATION = _number(C.CONTEXT_REQUESTS), _number(C.GENERATION_REQUESTS)
_CONTEXT_TOKENS, _GENERATION_TOKENS = _number(C.CONTEXT_TOKENS), _number(C.GENERATION_TOKENS)
_UNUSED_SUMS = r"sk\d+sqsq\d+sqsk\d+"
_FORWARD_STEP = (
    rf"{_number(C.STEP)}: {_CONTEXT} ctx reqs(?:, {_CONTEXT_TOKENS} ctx tokens)?, {_GENERATION} gen reqs"
)
_BATCH_SIZE = rf"bs={_number(C.REQUESTS)}"
BUILT_IN: Final = (
    rf"execute_context_{_CONTEXT}\({_CONTEXT_TOKENS}\)_generation_{_GENERATION}\({_GENERATION_TOKENS}\)$",
    rf"execute_\d+_context_{_CONTEXT}\(sq{_CONTEXT_TOKENS}{_UNUSED_SUMS}\)"
    rf"_generation_{_GENERATION}\(sq{_GENERATION_TOKENS}{_UNUSED_SUMS}\)$",
    # Before the other names of SGLang: its c_sq counts the drafts that are verified, which is decoding.
    rf"step\[(?P<{C.PHASE}>TARGET_VERIFY) {_BATCH_SIZE}(?:[^\]]*? c_sq={_number(_TOKENS)})?\b[^\]]*\]$",
    rf"step\[(?P<{C.PHASE}>[A-Z_\d]+) {_BATCH_SIZE}(?: toks={_number(_TOKENS)})?"
    rf"(?: c={_CONTEXT} g={_GENERATION})?"
    rf"(?:[^\]]*? c_sq={_CONTEXT_TOKENS})?(?:[^\]]*? g_sq={_GENERATION_TOKENS})?\b[^\]]*\]$",
    rf"\[Executor\] _forward_step {_FORWARD_STEP}",
)
"""Patterns of the names of vLLM, vLLM and SGLang with detailed annotations, SGLang, and TensorRT-LLM, in the
order in which they are tried."""
_PHASES: Final = {
    **dict.fromkeys(("prefill", "context", "ctx", "extend", "split_prefill"), ServingPhase.PREFILL),
    **dict.fromkeys(("decode", "generation", "gen", "target_verify"), ServingPhase.DECODE),
    "mixed": ServingPhase.MIXED,
}
"""Phase by its name in lower case, of an engine or a pattern of the project."""
_SPECULATIVE: Final = ("step[TARGET_VERIFY ", "step[DRAFT_EXTEND")
"""Beginnings of the names that only speculative decoding of SGLang has."""
_GROUPS: Final = {
    *(C.PHASE, C.STEP, C.REQUESTS, _TOKENS),
    *(C.CONTEXT_REQUESTS, C.CONTEXT_TOKENS, C.GENERATION_REQUESTS, C.GENERATION_TOKENS),
}
"""Named groups that a pattern may have."""
_SERVING: Final = re.compile(SERVING)


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What the name of a range says of its step; None where it does not say."""

    step: int | None = None  # number of the step
    phase: ServingPhase | None = None  # prefill, decode or mixed
    requests: int | None = None  # requests of the step, its batch size
    context_requests: int | None = None  # requests whose prompt is processed
    generation_requests: int | None = None  # requests that generate
    # tokens of prompts processed in this step: a part of a prompt if it is chunked
    context_tokens: int | None = None
    generation_tokens: int | None = None  # tokens processed for requests that generate, drafts included


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
    r"""Return what the name of a range says of its step; None if it marks none. Added patterns come first.

    Example:
        >>> read("step[EXTEND bs=15 toks=15360]").context_tokens
        15360
        >>> read("prefill: 3 requests", (r"(?P<phase>prefill): (?P<requests>\d+)",)).context_requests
        3
        >>> read("capture_32_DECODE")
    """
    # The common beginnings first: a range that has none of them is tried against no built-in pattern.
    tried = (*added, *BUILT_IN) if _SERVING.match(name) else added
    for pattern in tried:
        match = _compiled(pattern).match(name)
        if match:
            return _batch(match.groupdict())
    return None


_compiled = cache(re.compile)


def _batch(groups: dict[str, Any]) -> Batch:
    """Return the batch that the groups of a matching pattern describe: text or None by group name."""
    phase = _PHASES.get((groups.pop(C.PHASE, None) or "").lower())
    # A pattern of the project may capture any text as a number, of any length: what is none is unknown.
    fitting = {name: text for name, text in groups.items() if text and len(text) <= _MAX_DIGITS}
    numbers = {name: int(text) for name, text in fitting.items() if text.isdecimal()}
    requests, tokens = numbers.get(C.REQUESTS), numbers.get(_TOKENS)
    context, context_tokens = numbers.get(C.CONTEXT_REQUESTS), numbers.get(C.CONTEXT_TOKENS)
    generation, generation_tokens = numbers.get(C.GENERATION_REQUESTS), numbers.get(C.GENERATION_TOKENS)
    # In a step of one phase all requests and tokens are of that kind; of a mixed one the shares are unknown.
    if phase is ServingPhase.PREFILL:
        context, generation = _or(context, requests), _or(generation, 0)
        context_tokens = _or(context_tokens, tokens)
    elif phase is ServingPhase.DECODE:
        generation, context = _or(generation, requests), _or(context, 0)
        generation_tokens = _or(generation_tokens, tokens)
    both = None if context is None or generation is None else (context, generation)
    return Batch(
        step=numbers.get(C.STEP),
        phase=phase or _phase(*both or (0, 0)),
        requests=_or(requests, both and sum(both)),
        context_requests=context,
        generation_requests=generation,
        context_tokens=0 if context == 0 else context_tokens,
        generation_tokens=0 if generation == 0 else generation_tokens,
    )


def _or(stated: int | None, otherwise: int | None) -> int | None:
    """Return what is stated, which may be 0, else the other number."""
    return otherwise if stated is None else stated


def _phase(context: int, generation: int) -> ServingPhase | None:
    """Return the phase of a step with these numbers of requests; None without any, as in an idle step."""
    if context and generation:
        return ServingPhase.MIXED
    if context:
        return ServingPhase.PREFILL
    return ServingPhase.DECODE if generation else None


def read_steps(names: Sequence[str], added: tuple[str, ...]) -> list[Batch]:
    """Return what the names of all steps of a trace say, in the order of the names.

    Together, because a single name does not show whether the trace has speculative decoding.

    Args:
        names: Names that mark steps; one that no pattern matches describes nothing.
        added: Patterns of the project.
    """
    batches = {name: read(name, added) or Batch() for name in set(names)}
    if not any(name.startswith(_SPECULATIVE) for name in batches):
        for name, batch in batches.items():  # each request that generates processes one token
            tokens = _or(batch.generation_tokens, batch.generation_requests)
            batches[name] = structs.replace(batch, generation_tokens=tokens)
    return [batches[name] for name in names]


def columns(batches: Sequence[Batch], count: int) -> dict[str, pa.Array]:
    """Return the columns of `steps` that describe the batch of each step; null if there is none."""
    described = [column for column in STEPS.columns if column.nullable]  # the others are of every run
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
