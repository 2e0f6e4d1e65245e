"""Changes inside a program: each takes effect where there is something to change, and nowhere else."""

from __future__ import annotations

import copy
import gc
import inspect
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tracekit import analysis
from tracekit.recording import changes as catalog
from tracekit.recording.agent import changes, device_changes, model_changes
from tracekit.recording.agent.changes import apply_changes, counts

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Restore what changes replace in torch, and its settings."""
    data, parallel = torch.utils.data, torch.nn.parallel
    owners = [
        (torch.optim.Optimizer, ("__init__", "zero_grad")),
        (torch.nn.Module, ("__call__", "zero_grad")),
        (data.DataLoader, ("__init__",)),
        (torch.Tensor, ("to", "cuda")),
        (parallel.DistributedDataParallel, ("__init__",)),
        (
            torch,
            ("set_flush_denormal", "set_anomaly_enabled", "use_deterministic_algorithms", "set_num_threads"),
        ),
        (torch, device_changes.FACTORIES),
        (torch.nn.attention, ("_sdpa_kernel",)),
        (torch.nn.functional, ("scaled_dot_product_attention",)),
        (torch.backends.cuda, ("enable_flash_sdp", "enable_mem_efficient_sdp")),
        (torch.profiler.profile, ("__init__",)),
        (torch.distributed, ("init_process_group",)),
    ]
    originals = [(owner, name, getattr(owner, name)) for owner, names in owners for name in names]
    threads, precision, thresholds = (
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        gc.get_threshold(),
    )
    yield
    for owner, name, original in originals:
        setattr(owner, name, original)
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)
    torch.set_flush_denormal(False)
    torch.set_anomaly_enabled(False)
    torch.backends.cuda.enable_flash_sdp(True)
    gc.set_threshold(*thresholds)
    torch.use_deterministic_algorithms(False)
    counts.clear()
    changes.places.clear()
    changes.alternations.clear()


def apply(name: str) -> Callable[[], int]:
    """Apply a change of the catalog; returns what tells how often it took effect."""
    apply_changes(torch, catalog.locate([name]))
    return lambda: counts[name]


def model() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())


def test_every_function_has_one_change() -> None:
    modules = {Path(module.__file__): module for module in (changes, model_changes, device_changes)}
    known = [(change.file, change.function) for change in catalog.available().values()]
    public = {
        (file, name)
        for file, module in modules.items()
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
    }
    mechanism = {"apply_changes", "end_step", "set_arguments", "change_model", "forget_changes"}
    mechanism |= {"begin_turns", "end_turns"}
    assert sorted(known) == sorted(one for one in public if one[1] not in mechanism)


def test_gradients_become_none_where_they_were_zero() -> None:
    count, module = apply("zero_grad_to_none"), model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(2):
        module(torch.ones(1, 4)).sum().backward()
        optimizer.zero_grad(set_to_none=False)
    module.zero_grad()
    assert (count(), {parameter.grad for parameter in module.parameters()}) == (2, {None})


@pytest.mark.parametrize("name", ["foreach", "fused"])
def test_optimizers_update_in_few_calls_unless_they_do_so(name: str) -> None:
    count, module = apply(name), model()
    plain = torch.optim.AdamW(module.parameters(), lr=0.1)
    torch.optim.AdamW(module.parameters(), lr=0.1, foreach=True)
    torch.optim.LBFGS(module.parameters())  # has neither
    module(torch.ones(1, 4)).sum().backward()
    plain.step()
    assert (count(), plain.param_groups[0][name]) == (1, True)


@pytest.mark.parametrize(
    ("name", "given", "changed"),
    [
        ("num_workers", {}, {"num_workers": 1}),
        ("num_workers", {"num_workers": 2}, {}),
        ("persistent_workers", {"num_workers": 1}, {"persistent_workers": True}),
        ("persistent_workers", {}, {}),
        ("prefetch_factor", {"num_workers": 1}, {"prefetch_factor": 8}),
        ("prefetch_factor", {"num_workers": 1, "prefetch_factor": 9}, {}),
        ("pin_memory", {}, {"pin_memory": True}),
        ("pin_memory", {"pin_memory": True}, {}),
    ],
)
def test_arguments_of_loaders_are_replaced(
    name: str, given: dict[str, Any], changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MAX_WORKERS", 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    count = apply(name)
    loader = torch.utils.data.DataLoader([1, 2], 1, **given)
    assert count() == bool(changed)
    assert {key: getattr(loader, key) for key in given | changed} == given | changed


def test_workers_would_repeat_iterable_data() -> None:
    class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[int]:
            return iter([1, 2])

    count = apply("num_workers")
    assert list(torch.utils.data.DataLoader(Stream(), None)) == [1, 2]
    assert count() == 0


@pytest.mark.parametrize(("name", "threads"), [("one_thread", 1), ("all_cores", 3)])
def test_threads_are_one_or_one_per_core(name: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    torch.set_num_threads(2)
    count = apply(name)
    assert (count(), torch.get_num_threads()) == (1, threads)


def test_threads_that_the_program_sets_are_ignored_but_not_those_of_workers() -> None:
    torch.set_num_threads(1)
    count = apply("one_thread")
    torch.set_num_threads(2)
    assert (count(), torch.get_num_threads()) == (1, 1)
    exec("torch.set_num_threads(2)", {"__name__": changes.LOADER_WORKER, "torch": torch})  # noqa: S102
    assert (count(), torch.get_num_threads()) == (1, 2)


def test_two_numbers_of_threads_take_turns_without_counting_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The program computes in one thread: that it does is no effect of a change."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    torch.set_num_threads(1)
    apply_changes(torch, catalog.locate(["one_thread", "all_cores"]), steps=100)
    one, cores = changes.alternations[0]._changes.values()
    seen = []
    for change in (cores, one):
        change.turn(on=True)
        torch.set_num_threads(1)
        seen.append(torch.get_num_threads())
        change.turn(on=False)
    assert seen == [3, 1]
    assert (counts["one_thread"], torch.get_num_threads()) == (0, 1)
    cores.turn(on=True)
    exec("torch.set_num_threads(1)", {"__name__": changes.LOADER_WORKER, "torch": torch})  # noqa: S102
    assert torch.get_num_threads() == 1


def test_switches_of_debugging_are_ignored() -> None:
    count = apply("no_anomaly_detection")
    torch.autograd.set_detect_anomaly(True)
    assert (count(), torch.is_anomaly_enabled()) == (1, False)
    count = apply("nondeterministic")
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert (count(), torch.are_deterministic_algorithms_enabled()) == (1, False)
    torch.use_deterministic_algorithms(False)
    assert count() == 1


def test_settings_are_made_before_the_first_call_after_those_of_the_program() -> None:
    names = ["less_garbage_collection", "matmul_precision", "cudnn_benchmark"]
    apply_changes(torch, catalog.locate(names))
    gc.set_threshold(700, 10, 10)
    torch.set_float32_matmul_precision("highest")
    model()(torch.ones(1, 4))
    assert (gc.get_threshold()[0], torch.get_float32_matmul_precision()) == (
        changes.COLLECTOR_THRESHOLD,
        "high",
    )
    assert [counts[name] for name in names] == [1, 1, torch.cuda.is_available()]
    apply_changes(torch, catalog.locate(names))
    model()(torch.ones(1, 4))
    assert [counts[name] for name in names[:2]] == [0, 0]  # they are so already
    assert apply("flush_denormals")() in (0, 1)  # not every processor can


def test_a_changed_model_is_copied_and_saved_as_before(tmp_path: Path) -> None:
    apply_changes(torch, catalog.locate(["bfloat16", "inference_mode"]))
    module = model().eval()
    assert module(torch.ones(1, 4)).is_inference()
    assert (type(module).__name__, isinstance(module, torch.nn.Sequential)) == ("Sequential", True)
    torch.save(module, tmp_path / "model.pt")
    for other in (copy.deepcopy(module), torch.load(tmp_path / "model.pt", weights_only=False)):
        assert type(other) is torch.nn.Sequential
        assert other(torch.ones(1, 4)).dtype is torch.float32


def test_the_line_where_a_change_took_effect_is_kept() -> None:
    apply("foreach")
    torch.optim.AdamW(model().parameters())
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    assert changes.places == {"foreach": f"{__file__}:{line}"}


def test_compilation_comes_before_what_surrounds_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda function: compiled.append(function) or function)
    module = model()
    forward = module.forward
    apply_changes(torch, catalog.locate(["bfloat16", "compile"]))
    assert module(torch.ones(1, 4)).dtype is torch.bfloat16
    assert compiled == [forward]


def test_parameters_on_a_device_are_updated_at_once_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    count = apply("foreach")
    parameters = [torch.nn.Parameter(torch.ones(1, device="meta"))]
    torch.optim.SGD(parameters)
    assert count() == 0
    torch.optim.SGD(parameters, foreach=False)
    assert count() == 1


def test_copies_from_pinned_memory_do_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[dict[str, Any]] = []

    def to(self: Any, *_: Any, **options: Any) -> Any:
        copied.append(options)
        return torch.empty(1, device="meta")

    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "cuda", to)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: len(tensor) > 1)
    count = apply("non_blocking")
    for length in (1, 2):
        torch.ones(length).to("cuda")
        torch.ones(length).cuda(non_blocking=True)
    assert copied == [{}, {"non_blocking": True}, {"non_blocking": True}, {"non_blocking": True}]
    assert count() == 1


def test_copies_that_are_told_by_position_whether_to_block_stay_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda _: True)
    count = apply("non_blocking")
    assert torch.ones(1).to("meta", torch.float32, True).is_meta
    assert torch.ones(1).to(torch.ones(1, device="meta"), True).is_meta
    assert count() == 0


def test_tensors_are_made_where_their_line_copies_them() -> None:
    count = apply("created_on_device")

    def make(device: str) -> Any:
        host = torch.zeros(2)
        return host, torch.ones(2).to(device), torch.full((2,), 3.0, device="cpu")

    for _ in range(3):
        host, moved, kept = make("meta")
        assert [str(one.device) for one in (host, moved, kept)] == ["cpu", "meta", "cpu"]
    assert count() == 2
    assert not vars(host)  # it is saved and copied as before


def test_attention_is_fused_again() -> None:
    query = torch.rand(1, 2, 8, 4)

    def attend() -> set[str]:
        with torch.profiler.profile() as profile:
            torch.nn.functional.scaled_dot_product_attention(query, query, query)
        return {event.key for event in profile.key_averages()}

    plain = "aten::_scaled_dot_product_attention_math"
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert plain in attend()
    count = apply("fused_attention")
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert plain not in attend()
    torch.backends.cuda.enable_flash_sdp(False)
    assert plain not in attend()
    assert count() == 2
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        assert count() == 2  # it was fused


def test_half_precision_on_a_gpu_is_attended_by_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[Any] = []
    monkeypatch.setattr(
        torch.nn.functional,
        "scaled_dot_product_attention",
        lambda *_: orders.append(torch.nn.attention._cur_sdpa_kernel_backends(with_priority=True)),
    )
    count = apply("cudnn_attention")
    for is_cuda in (False, True):
        query = SimpleNamespace(is_cuda=is_cuda, dtype=torch.bfloat16)
        torch.nn.functional.scaled_dot_product_attention(query, query, query)
    cudnn = torch.nn.attention.SDPBackend.CUDNN_ATTENTION
    assert (count(), orders[0][0] == cudnn, orders[1][0] == cudnn) == (1, False, True)


def test_profilers_of_the_program_record_nothing() -> None:
    count = apply("no_profilers")
    with torch.profiler.profile() as profile:
        torch.ones(1)
        profile.step()
        assert not torch.autograd.profiler._is_profiler_enabled
    assert count() == 1


def test_variables_are_set_for_what_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    monkeypatch.delenv("NCCL_MIN_NCHANNELS", raising=False)
    monkeypatch.setenv("TORCH_NCCL_HIGH_PRIORITY", "0")
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *_, **__: None)
    names = ["asynchronous_launches", "cached_allocations", "nccl_channels", "nccl_priority"]
    apply_changes(torch, catalog.locate(names))
    assert not {"CUDA_LAUNCH_BLOCKING", "PYTORCH_NO_CUDA_MEMORY_CACHING"} & os.environ.keys()
    assert [counts[name] for name in names] == [1, 1, 0, 0]
    torch.distributed.init_process_group("gloo")
    assert counts["nccl_channels"] == 0
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl")
    assert (os.environ.pop("NCCL_MIN_NCHANNELS"), os.environ["TORCH_NCCL_HIGH_PRIORITY"]) == ("16", "0")
    assert [counts[name] for name in names] == [1, 1, 1, 0]


def test_one_connection_counts_where_cuda_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
    waiting: list[Callable[[], None]] = []
    monkeypatch.setattr(torch.cuda, "_lazy_call", waiting.append)
    count = apply("one_connection")
    assert (os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS"), count()) == ("1", 0)
    waiting[0]()
    assert count() == 1


def test_threads_are_bound_by_variables_unless_the_user_set_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_PROC_BIND", raising=False)
    assert apply("bound_threads")() == 0
    variables = catalog.environment(["bound_threads"])
    assert variables == {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores"}
    monkeypatch.setenv("OMP_PROC_BIND", "close")
    assert (apply("bound_threads")(), catalog.environment(["bound_threads"])) == (1, {})


def test_objects_of_the_begin_are_frozen() -> None:
    was_frozen = gc.get_freeze_count() > 0  # by the tests' own start
    gc.unfreeze()
    count = apply("freeze_objects")
    try:
        model()(torch.ones(1, 4))
        assert (count(), gc.get_freeze_count() > 1000) == (1, True)
    finally:
        if not was_frozen:
            gc.unfreeze()


def test_float16_is_for_inference() -> None:
    count, module = apply("float16"), model()
    assert module(torch.ones(1, 4)).dtype is torch.float32
    with torch.no_grad():
        assert module(torch.ones(1, 4)).dtype is torch.float16
    assert count() == 1


def test_a_model_left_in_training_mode_is_evaluated_only_without_gradients() -> None:
    count, module = apply("evaluation_mode"), model()
    module(torch.ones(1, 4))
    assert (count(), module.training) == (0, True)
    count = apply("evaluation_mode")
    with torch.no_grad():
        module(torch.ones(1, 4))
    assert (count(), module.training) == (1, False)


def test_the_memory_allocator_is_preloaded_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "other.so")
    monkeypatch.setattr(catalog, "find_library", {"tcmalloc": "libtcmalloc.so.4"}.get)
    assert catalog.environment(["malloc", "foreach"]) == {"LD_PRELOAD": "libtcmalloc.so.4 other.so"}
    monkeypatch.setattr(catalog, "find_library", lambda _: None)
    assert catalog.environment(["malloc"]) == {}
    assert apply("malloc")() == 0


def test_answers_are_codes_of_rules() -> None:
    codes = {rule.code for loaded in analysis.available() for rule in loaded.rules}
    answered = {code for change in catalog.available().values() for code in change.answers}
    assert answered <= codes


def test_the_first_model_with_parameters_runs_in_bfloat16() -> None:
    count, module = apply("bfloat16"), model()
    torch.nn.Identity()(torch.ones(1))
    assert module(torch.ones(1, 4)).dtype is torch.bfloat16
    assert module(torch.ones(1, 4)).dtype is torch.bfloat16
    assert model()(torch.ones(1, 4)).dtype is torch.float32
    assert count() == 2


def test_what_the_program_has_already_is_not_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    count = apply("bfloat16")
    with torch.autocast("cpu", dtype=torch.float16):
        assert model()(torch.ones(1, 4)).dtype is torch.float16
    assert count() == 0
    count, module = apply("compile"), model()
    module._compiled_call_impl = module._call_impl  # as module.compile() does
    monkeypatch.setattr(torch, "compile", None)
    module(torch.ones(1, 4))
    assert count() == 0


def test_a_model_that_is_evaluated_first_can_be_trained() -> None:
    count, module = apply("inference_mode"), model().eval()
    assert module(torch.ones(1, 4)).is_inference()
    module.train()(torch.ones(1, 4)).sum().backward()
    assert count() == 1


def test_inference_mode_is_for_models_that_are_not_trained() -> None:
    count = apply("inference_mode")
    assert model()(torch.ones(1, 4)).requires_grad
    assert count() == 0
    count, module = apply("inference_mode"), model().eval()
    assert module(torch.ones(1, 4)).is_inference()
    assert count() == 1


def test_convolutions_get_channels_last() -> None:
    count = apply("channels_last")
    model()(torch.ones(1, 4))
    assert count() == 0
    count = apply("channels_last")
    module = torch.nn.Sequential(torch.nn.Conv2d(2, 2, 3))
    module.other = torch.nn.Conv3d(2, 2, 3)
    module.forward = module[0].forward  # the other, of another rank, is not called
    module(torch.ones(1, 2, 5, 5))
    assert count() == 1
    assert module[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_the_model_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: lambda *arguments: function(*arguments) + 1)
    count, module = apply("compile"), torch.nn.Linear(4, 4)
    torch.nn.init.zeros_(module.weight)
    torch.nn.init.zeros_(module.bias)
    assert module(torch.ones(4)).tolist() == [1.0] * 4
    assert count() == 1


def test_gradients_of_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    def init(
        self: Any,
        module: Any,
        *,
        broadcast_buffers: bool = True,
        gradient_as_bucket_view: bool = False,
        bucket_cap_mb: int | None = None,
        static_graph: bool = False,
    ) -> None:
        made.append(
            {
                "local_buffers": not broadcast_buffers,
                "bucket_views": gradient_as_bucket_view,
                "bucket_size": bucket_cap_mb,
                "static_graph": static_graph,
            }
        )

    monkeypatch.setattr(torch.nn.parallel.DistributedDataParallel, "__init__", init)
    names = ["local_buffers", "bucket_views", "bucket_size", "static_graph"]
    apply_changes(torch, catalog.locate(names))
    torch.nn.parallel.DistributedDataParallel(None, broadcast_buffers=False)
    assert made == [dict.fromkeys(names, True) | {"bucket_size": device_changes.BUCKET_MB}]
    assert counts == dict.fromkeys(names, 1) | {"local_buffers": 0}


def test_a_change_of_another_package_is_loaded_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "slower.py"
    file.write_text("def change(torch, applied):\n    torch.tried = 1\n    applied()\n")
    apply_changes(torch, [{"name": "own", "file": str(file), "function": "change"}])
    assert (torch.tried, counts) == (1, {"own": 1})
    del torch.tried
    assert not any(name.endswith("slower") for name in sys.modules)


def test_the_page_lists_every_change() -> None:
    page = (Path(__file__).parents[4] / "docs/trying.md").read_text()
    rows = {
        f"| `{name}` | {change.title} | `{change.code}` | {change.results} |"
        for name, change in catalog.available().items()
    }
    assert rows <= set(page.splitlines())


def _gradient(module: Any, optimizer: Any) -> bool:
    module(torch.ones(1, 4)).sum().backward()
    optimizer.zero_grad(set_to_none=False)
    return module[0].weight.grad is None


def _infer(module: Any) -> Any:
    module.eval()
    return module(torch.ones(1, 4))


def _training(module: Any) -> list[bool]:
    with torch.no_grad():
        module(torch.ones(1, 4))
    return [layer.training for layer in module]


@pytest.mark.parametrize(
    ("name", "begin", "observe", "off", "on"),
    [
        ("zero_grad_to_none", None, _gradient, False, True),
        ("foreach", None, lambda _, optimizer: optimizer.param_groups[0]["foreach"], False, True),
        ("fused", None, lambda _, optimizer: optimizer.param_groups[0]["fused"], None, True),
        ("one_thread", lambda _: torch.set_num_threads(3), lambda *_: torch.get_num_threads(), 3, 1),
        ("flush_denormals", None, lambda *_: (torch.tensor(1e-40) * 1).item() > 0, True, False),
        (
            "no_anomaly_detection",
            lambda _: torch.set_anomaly_enabled(True),
            lambda *_: torch.is_anomaly_enabled(),
            True,
            False,
        ),
        (
            "nondeterministic",
            lambda _: torch.use_deterministic_algorithms(True),
            lambda *_: torch.are_deterministic_algorithms_enabled(),
            True,
            False,
        ),
        (
            "evaluation_mode",
            lambda module: module[1].eval(),
            lambda module, _: _training(module),
            [1, 0],
            [0, 0],
        ),
        ("bfloat16", None, lambda module, _: module(torch.ones(1, 4)).dtype, torch.float32, torch.bfloat16),
        ("inference_mode", None, lambda module, _: _infer(module).is_inference(), False, True),
        ("compile", None, lambda module, _: module(torch.ones(1, 4)).dim(), 2, 0),
        (
            "matmul_precision",
            lambda module: module(torch.ones(1, 4)),
            lambda *_: torch.get_float32_matmul_precision(),
            "highest",
            "high",
        ),
    ],
)
def test_changes_can_be_turned_off_again(
    name: str,
    begin: Callable[[Any], object] | None,
    observe: Callable[[Any, Any], Any],
    off: Any,
    on: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "compile", lambda _: lambda *_: torch.zeros(()))
    apply_changes(torch, catalog.locate([name]), steps=100)
    change, module = changes.alternations[0]._changes[name], model()
    optimizer = torch.optim.AdamW(module.parameters(), foreach=False)
    if begin:
        begin(module)
    seen = []
    for is_on in (False, True, False, True, False):
        change.turn(on=is_on)
        seen.append(observe(module, optimizer))
    assert seen == [off, on, off, on, off]
    assert counts[name]
    assert catalog.find(name).alternates_on


def _turn(name: str) -> Callable[[bool], None]:
    """Apply a change that takes turns; returns what turns it on and off."""
    apply_changes(torch, catalog.locate([name]), steps=100)
    change = changes.alternations[0]._changes[name]
    return lambda on: change.turn(on=on)


def test_a_precision_that_the_program_sets_meanwhile_stays_so() -> None:
    turn, module = _turn("matmul_precision"), model()
    module(torch.ones(1, 4))
    seen = []
    for on, set_by_program in ((True, None), (False, None), (True, "medium"), (False, None), (True, None)):
        turn(on)
        if set_by_program:
            torch.set_float32_matmul_precision(set_by_program)
        seen.append(torch.get_float32_matmul_precision())
    assert seen == ["high", "highest", "medium", "medium", "high"]
    turn(False)
    assert torch.get_float32_matmul_precision() == "medium"


def test_a_compiled_model_is_surrounded_and_saved_as_before(tmp_path: Path) -> None:
    turn, module = _turn("bfloat16"), torch.compile(model(), backend="eager")
    seen = []
    for on in (False, True, False):
        turn(on)
        seen.append(module(torch.ones(1, 4)).dtype)
    assert seen == [torch.float32, torch.bfloat16, torch.float32]
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    assert list(torch.load(tmp_path / "weights.pt")) == list(module.state_dict())


def test_denormals_that_the_program_flushes_stay_so() -> None:
    turn = _turn("flush_denormals")
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    flushed = []
    for on in (True, False):
        turn(on)
        flushed.append((torch.tensor(1e-40) * 1).item() == 0)
    torch.set_flush_denormal(False)
    flushed.append((torch.tensor(1e-40) * 1).item() == 0)
    assert flushed == [True, True, False]


def test_a_model_that_the_program_evaluates_stays_so() -> None:
    turn, module = _turn("evaluation_mode"), model()
    with torch.no_grad():
        module(torch.ones(1, 4))
    module.eval()
    for on in (True, False):
        turn(on)
        assert not any(layer.training for layer in module.modules())
    assert counts["evaluation_mode"] == 1


def test_optimizers_are_turned_with_the_state_they_load_and_freed_with_the_program() -> None:
    turn, module = _turn("foreach"), model()
    optimizer = torch.optim.AdamW(module.parameters(), foreach=False)
    optimizer.load_state_dict(optimizer.state_dict())
    turn(True)
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))], "foreach": False})
    assert [group["foreach"] for group in optimizer.param_groups] == [True, False]
    turn(False)
    assert [group["foreach"] for group in optimizer.param_groups] == [False, False]
    weight = weakref.ref(module[0].weight)
    del optimizer, module
    gc.collect()
    assert weight() is None
