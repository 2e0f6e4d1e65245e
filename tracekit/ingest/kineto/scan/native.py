"""Compile the decoder to machine code once per machine, cache it, and load it in some hundredths of a second.

Numba compiles, which takes seconds; cached code is loaded by LLVM alone, without Numba. A cached file's name
is a hash of what it was made of (the contents of this reader's sources, the versions of Python and llvmlite,
the processor). The file begins with its own checksum, since damaged machine code would not fail but run.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import msgspec

from tracekit import schema
from tracekit.ingest import kineto
from tracekit.ingest.spool import text_columns
from tracekit.storage import cache_folder
from tracekit.storage.atomic import write_atomically

_PREFIX = "tracekit_"
_ARGUMENTS = {"scan": 6, "code_of": 3, "distinct": 5, "nest": 8, "inherit": 3}
"""Number of int64 arguments of each exported function."""
_DIGEST = hashlib.sha256().digest_size


def place() -> Path:
    """The file for the machine code, whether it exists or not."""
    return cache_folder("scan") / f"{_fingerprint(sys.version)[:24]}.o"


@cache
def _fingerprint(python: str) -> str:
    processor = f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    made_for = f"{python} {llvmlite.__version__} {llvm.get_process_triple()} {processor}"
    digest = hashlib.sha256(made_for.encode())
    sources = Path(kineto.__file__).parent.rglob("*.py")
    for file in [Path(schema.__file__), Path(text_columns.__file__), *sorted(sources)]:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def is_compiled() -> bool:
    """Whether valid machine code is cached."""
    return _read(place()) is not None


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    checksum, code = content[:_DIGEST], content[_DIGEST:]
    return code if code and hashlib.sha256(code).digest() == checksum else None


def can_be_kept() -> bool:
    """Whether the cache is writable; compiling for one trace alone is not worth it."""
    try:
        folder = place().parent
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _write(path: Path, code: bytes) -> None:
    with suppress(OSError):  # such as a full disk
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(path, temporary=path.with_name(f"{path.name}.{os.getpid()}")) as file:
            file.write_bytes(hashlib.sha256(code).digest() + code)


def compiled() -> bytes:
    """Compile the decoder, and cache the machine code where that is possible."""
    code: bytes = _machine().emit_object(optimized())
    _write(place(), code)
    return code


def optimized() -> Any:
    """The decoder as an LLVM module, with everything inlined into the exported functions.

    Numba's functions return results through memory, with a status that each caller checks. Inlining removes
    both, and a third of the scan's time.
    """
    module = generated()
    for function in module.functions:
        if not function.is_declaration and not function.name.startswith(_PREFIX):
            function.linkage = llvm.Linkage.internal
            function.add_function_attribute("alwaysinline")
    passes = llvm.create_pass_builder(_machine(), llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(module, passes)
    return module


def generated() -> Any:
    """The decoder as an LLVM module, as Numba generates it."""
    from tracekit.ingest.kineto.scan.codegen.events import scan
    from tracekit.ingest.kineto.scan.codegen.rows import code_of, distinct, inherit, nest

    module = llvm.parse_assembly("")
    for name, function in zip(_ARGUMENTS, (scan, code_of, distinct, nest, inherit), strict=True):
        module.link_in(llvm.parse_assembly(_c_function(function, name)))
    return module


def _c_function(function: Any, name: str) -> str:
    """Generate the LLVM assembly of a function with C's calling convention."""
    from numba import cfunc, types

    made = cfunc(types.int64(*[types.int64] * _ARGUMENTS[name]), error_model="numpy")(function.py_func)
    text: str = made.inspect_llvm()
    return text.replace(made._wrapper_name, _PREFIX + name)


class Code(msgspec.Struct, frozen=True):
    """The loaded functions of `codegen`, called with addresses and numbers; they run without the GIL.

    Attributes:
        engine: Owner of the machine code.
    """

    scan: Callable[..., int]
    code_of: Callable[..., int]
    distinct: Callable[..., int]
    nest: Callable[..., int]
    inherit: Callable[..., int]
    engine: Any


@cache
def load() -> Code:
    """Load the machine code, compiling it now if it is not cached."""
    code = _read(place()) or compiled()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return Code(**{name: _function(engine, name) for name in _ARGUMENTS}, engine=engine)


def _function(engine: Any, name: str) -> Callable[..., int]:
    kind = ctypes.CFUNCTYPE(*[ctypes.c_int64] * (1 + _ARGUMENTS[name]))
    return kind(engine.get_function_address(_PREFIX + name))


def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, jit=True
    )
