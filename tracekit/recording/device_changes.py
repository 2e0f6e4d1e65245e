"""Changes that `tracekit try` can make in how a program uses GPUs; see `tracekit.recording.changes`."""

from __future__ import annotations

from tracekit.recording.agent import device_changes as functions
from tracekit.recording.agent import model_changes
from tracekit.recording.changes import ANY_DEVICE, Change, computes_in_float32, is_inferring

FLOAT16 = Change(
    title="infer in float16 where that is safe (autocast)",
    applies=model_changes.infer_in_float16,
    code='with torch.autocast(device_type="cuda", dtype=torch.float16): output = model(batch)',
    results="precision",
    needs_device=True,
    fits=lambda settings: is_inferring(settings) and computes_in_float32(settings),
    alternates_on=ANY_DEVICE,
)
FUSED_ATTENTION = Change(
    title="compute attention by a fused kernel where the program asks for plain products",
    applies=functions.fuse_attention,
    code="remove sdpa_kernel(SDPBackend.MATH)",
    results="rounding",
    answers=("eager_attention",),
)
CUDNN_ATTENTION = Change(
    title="compute attention by cuDNN before other kernels",
    applies=functions.attend_by_cudnn,
    code="with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):",
    results="rounding",
    needs_device=True,
    alternates_on=ANY_DEVICE,
)
CACHED_ALLOCATIONS = Change(
    title="keep freed memory of a GPU for the next tensors",
    applies=functions.cache_allocations,
    code="unset PYTORCH_NO_CUDA_MEMORY_CACHING",
    answers=("caching_allocator_off", "allocator_churn"),
    needs_device=True,
)
ASYNCHRONOUS_LAUNCHES = Change(
    title="do not wait for each kernel after its launch",
    applies=functions.launch_asynchronously,
    code="unset CUDA_LAUNCH_BLOCKING",
    answers=("synchronous_launches",),
    needs_device=True,
)
ONE_CONNECTION = Change(
    title="submit the work of all streams by one hardware queue",
    applies=functions.use_one_connection,
    code="CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun train.py",
    answers=("exposed_communication",),
    needs_device=True,
)
NCCL_PRIORITY = Change(
    title="run collectives on streams of high priority",
    applies=functions.prioritize_nccl,
    code="TORCH_NCCL_HIGH_PRIORITY=1 torchrun train.py",
    answers=("exposed_communication",),
    needs_device=True,
)
NCCL_CHANNELS = Change(
    title="let collectives use more channels",
    applies=functions.widen_nccl,
    code=f"NCCL_MIN_NCHANNELS={functions.NCCL_CHANNELS} torchrun train.py",
    answers=("slow_collectives",),
    needs_device=True,
)
CREATED_ON_DEVICE = Change(
    title="make tensors on the device to which their line copies them",
    applies=functions.create_on_device,
    code="torch.zeros(size, device=device)",
    answers=("h2d_repeated", "pageable_copies"),
    needs_device=True,
)
