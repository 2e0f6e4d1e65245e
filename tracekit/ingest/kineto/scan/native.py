"""The scan as machine code: compiled once on a machine, then loaded in some hundredths of a second.

Numba compiles, which takes seconds, and is not even imported where the code is there already: LLVM alone
loads it from the user's cache folder. A file goes by what it was made of (this reader's sources, LLVM, the
processor), and begins with its own checksum: machine code that is damaged would not fail, but do something.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import llvmlite
import llvmlite.binding as llvm
import msgspec

from tracekit import schema
from tracekit.ingest import flops, kineto, limits

if TYPE_CHECKING:
    from collections.abc import Callable

_PREFIX = "tracekit_"
_ARGUMENTS = {"scan": 6, "code_of": 3, "distinct": 5, "nest": 8, "inherit": 3}
"""How many numbers and addresses each function takes."""
_DIGEST = hashlib.sha256().digest_size


def place() -> Path:
    """The file that has, or will have, the machine code."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "tracekit" / "scan" / f"{_made_of(sys.version)[:24]}.o"


@cache
def _made_of(python: str) -> str:
    digest = hashlib.sha256(f"{python} {llvmlite.__version__} {_target()}".encode())
    sources = Path(kineto.__file__).parent.rglob("*.py")
    for file in [Path(schema.__file__), Path(flops.__file__), Path(limits.__file__), *sorted(sources)]:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _target() -> str:
    return f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


def is_compiled() -> bool:
    """Whether the machine code is there and whole."""
    return _read(place()) is not None


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    checksum, code = content[:_DIGEST], content[_DIGEST:]
    return code if code and hashlib.sha256(code).digest() == checksum else None


def can_be_kept() -> bool:
    """Whether machine code can be written; it is not worth compiling for one trace alone."""
    try:
        folder = place().parent
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _write(path: Path, code: bytes) -> None:
    half = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        half.write_bytes(hashlib.sha256(code).digest() + code)
        half.replace(path)
    except OSError:  # such as a disk that is full
        with suppress(OSError):
            half.unlink()


def compiled() -> bytes:
    """The machine code, compiled now and kept where that is possible."""
    machine, module = _machine(), _module()
    _inline(module, machine)
    code: bytes = machine.emit_object(module)
    _write(place(), code)
    return code


def _inline(module: Any, machine: Any) -> None:
    """Have all that is called become part of its callers.

    Numba's functions hand their results over in memory, with a status that every caller asks for; inside of
    one function none of that is left, which takes a third of the scan's time away.
    """
    for function in module.functions:
        if not function.is_declaration and not function.name.startswith(_PREFIX):
            function.linkage = llvm.Linkage.internal
            function.add_function_attribute("alwaysinline")
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(module, passes)


class Code(msgspec.Struct, frozen=True):
    """What is compiled; called with addresses and numbers, other threads run beside it.

    Attributes:
        scan: `codegen.events.scan`.
        code_of: `codegen.interning.code_of`.
        distinct: `codegen.distinct.distinct`.
        nest: `codegen.nest.nest`.
        inherit: `codegen.nest.inherit`.
        engine: What holds the code.
    """

    scan: Callable[..., int]
    code_of: Callable[..., int]
    distinct: Callable[..., int]
    nest: Callable[..., int]
    inherit: Callable[..., int]
    engine: Any


@cache
def load() -> Code:
    """The machine code; compiled now where it is not yet."""
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


def _module() -> Any:
    """All of it as one module of LLVM's."""
    from tracekit.ingest.kineto.scan.codegen.distinct import distinct
    from tracekit.ingest.kineto.scan.codegen.events import scan
    from tracekit.ingest.kineto.scan.codegen.interning import code_of
    from tracekit.ingest.kineto.scan.codegen.nest import inherit, nest

    whole = llvm.parse_assembly("")
    for name, function in zip(_ARGUMENTS, (scan, code_of, distinct, nest, inherit), strict=True):
        whole.link_in(llvm.parse_assembly(_as_c(function, name)))
    return whole


def _as_c(function: Any, name: str) -> str:
    """A function in LLVM's language, to be called as one of C."""
    from numba import cfunc, types

    made = cfunc(types.int64(*[types.int64] * _ARGUMENTS[name]), error_model="numpy")(function.py_func)
    text: str = made.inspect_llvm()
    return text.replace(made._wrapper_name, _PREFIX + name)
