"""Declare the built-in workloads; the modules that build them import torch, so they are imported only then.

All data is random. Numbers of parameters are published ones: those that torchvision, transformers or the
module of the model names.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from tracekit.workloads.base import (
    COMPILE,
    DATASET_SHAPES,
    EAGER,
    TORCHSCRIPT,
    Memory,
    Options,
    Program,
    Workload,
    batch_norm_check,
    positions_check,
)

_CHUNK = 64


def _build_with(module: str, name: str = "build", **arguments: Any) -> Callable[[Options], Program]:
    """Return a function that imports a module of this folder and calls a function of it."""

    def build(options: Options) -> Program:
        return getattr(import_module(f"{__package__}.{module}"), name)(options, **arguments)

    return build


def _sizes(**sizes: tuple[int, int]) -> dict[str, Any]:
    """Return the defaults and the presets from pairs of batch size and resolution."""
    named = {name: {"batch_size": batch, "resolution": side} for name, (batch, side) in sizes.items()}
    return {"defaults": named.pop("default"), "sizes": named}


def _memory(*, train: tuple[float, float], infer: tuple[float, float]) -> dict[str, Memory]:
    """Return the memory of a step of size `gpu` from pairs of MB: fixed, and of a sample."""
    pairs = {"train": train, "infer": infer}
    return {mode: Memory(fixed=round(a * 1e6), sample=round(b * 1e6)) for mode, (a, b) in pairs.items()}


def _image_classifier(
    name: str,
    model: str,
    *,
    parameters: int,
    batch: int,
    gpu_batch: int,
    memory: dict[str, Memory],
    build: Callable[[Options], Program],
) -> Workload:
    """Declare a classifier whose deepest layers normalize a batch of images of a 32nd of the side."""
    return Workload(
        name=name,
        domain="vision",
        summary=f"{model} classifying random 3-channel images into 1000 classes",
        parameters=parameters,
        **_sizes(default=(batch, 224), test=(2, 64), gpu=(gpu_batch, 224)),
        dataset_shapes=tuple(DATASET_SHAPES),
        memory=memory,
        smallest_resolution=8,
        build=build,
        check=batch_norm_check(name, side=32),
    )


def _reformer(name: str, summary: str, *, copies: bool) -> Workload:
    return Workload(
        name=name,
        domain="language",
        summary=summary,
        parameters=5_975_872,
        **_sizes(default=(2, 512), test=(1, 128), gpu=(8, 4096)),
        memory=_memory(train=(72, 1024), infer=(24, 183)),
        smallest_resolution=2 * _CHUNK,
        resolution_means=f"Bytes in a sequence, a multiple of {_CHUNK}",
        build=_build_with("reformer", copies=copies),
        check=positions_check(name, 4096, chunk=_CHUNK),
    )


BERT = Workload(
    name="bert",
    domain="language",
    summary="BERT-base recovering masked words of random sentences; two layers in size test",
    parameters=109_482_240,
    **_sizes(default=(1, 128), test=(1, 8), gpu=(32, 512)),
    memory=_memory(train=(1314, 533), infer=(438, 64.2)),
    resolution_means="Tokens in a sequence",
    build=_build_with("bert"),
    check=positions_check("bert", 512),
)
DLRM = Workload(
    name="dlrm",
    domain="recommendation",
    summary="DLRM with 26 embedding tables judging random clicks",
    parameters=13_924_673,
    **_sizes(default=(128, 1), test=(128, 1), gpu=(16_384, 1)),
    memory=_memory(train=(57, 0.014), infer=(56, 0.010)),
    resolution_means="Categories in a bag",
    build=_build_with("dlrm"),
)
GPT = Workload(
    name="gpt",
    domain="language",
    summary="GPT-2 (124M) predicting the next of random tokens; two layers in size test",
    parameters=124_439_808,
    **_sizes(default=(1, 128), test=(1, 8), gpu=(8, 1024)),
    memory=_memory(train=(1493, 1229), infer=(498, 213)),
    resolution_means="Tokens in a sequence",
    build=_build_with("gpt"),
    check=positions_check("gpt", 1024),
)
LENNARD_JONES = Workload(
    name="lennard_jones",
    domain="other",
    summary="An MLP learning energies and forces of the Lennard-Jones potential, forces by autograd",
    parameters=865,
    # torch.jit.trace would make constants of the weights that the inner autograd reads
    levels=(EAGER, COMPILE),
    dtypes=("float32", "float64", "bfloat16"),
    **_sizes(default=(1000, 1), test=(100, 1), gpu=(1000, 64)),
    memory=_memory(train=(0.1, 0.071), infer=(0.1, 0.029)),
    resolution_means="Pairs of points in a sample",
    build=_build_with("lennard_jones"),
)
MNIST_CNN = Workload(
    name="mnist_cnn",
    domain="vision",
    summary="Two convolutions and two linear layers classifying random 1-channel images into 10 classes",
    parameters=1_199_882,
    **_sizes(default=(64, 28), test=(16, 28), gpu=(1024, 28)),
    memory=_memory(train=(14, 0.54), infer=(5, 0.31)),
    dataset_shapes=tuple(DATASET_SHAPES),
    smallest_resolution=6,
    build=_build_with("image_models", "mnist_cnn"),
)
MOBILENET_V2 = _image_classifier(
    "mobilenet_v2",
    "MobileNetV2",
    parameters=3_504_872,
    batch=16,
    gpu_batch=96,
    memory=_memory(train=(34, 79.4), infer=(14, 11.7)),
    build=_build_with("image_models", "mobilenet_v2"),
)
REFORMER = _reformer(
    "reformer", "Reformer recovering masked bytes; each attention copies a scalar to the device", copies=True
)
REFORMER_FIXED = _reformer(
    "reformer_fixed", "The same Reformer with the scalar as a Python number: no copy", copies=False
)
RESNET18 = _image_classifier(
    "resnet18",
    "ResNet-18",
    parameters=11_689_512,
    batch=16,
    gpu_batch=128,
    memory=_memory(train=(102, 23.0), infer=(47, 7.7)),
    build=_build_with("image_models", "resnet", depth=18),
)
RESNET50 = _image_classifier(
    "resnet50",
    "ResNet-50",
    parameters=25_557_032,
    batch=8,
    gpu_batch=64,
    memory=_memory(train=(213, 87.4), infer=(102, 12.5)),
    build=_build_with("image_models", "resnet", depth=50),
)
SAC = Workload(
    name="sac",
    domain="rl",
    summary="Soft actor-critic learning to swing a pendulum up that the host simulates between updates",
    parameters=201_989,
    levels=(EAGER, TORCHSCRIPT, COMPILE),
    dtypes=("float32", "float64", "bfloat16"),
    **_sizes(default=(256, 1), test=(64, 1), gpu=(256, 1)),
    memory=_memory(train=(4, 0.006), infer=(1, 0.002)),
    resolution_means="Environment steps between updates",
    offloads=("none",),
    build=_build_with("sac"),
)
SPEECH_TRANSFORMER = Workload(
    name="speech_transformer",
    domain="speech",
    summary="Transformer encoder aligning word pieces with random mel frames by CTC",
    parameters=18_904_456,
    **_sizes(default=(4, 400), test=(1, 64), gpu=(32, 1600)),
    memory=_memory(train=(227, 342), infer=(76, 64.9)),
    smallest_resolution=7,
    resolution_means="Frames of 10 ms",
    build=_build_with("speech_transformer"),
)
TTS = Workload(
    name="tts",
    domain="speech",
    summary="Tacotron 2 speaking random text into mel frames, one after another",
    parameters=28_193_153,
    **_sizes(default=(4, 40), test=(1, 4), gpu=(64, 400)),
    memory=_memory(train=(452, 60), infer=(113, 20)),  # bounds from shorter sequences
    smallest_resolution=2,
    resolution_means="Frames of 11.6 ms",
    build=_build_with("tts"),
)
UNET = Workload(
    name="unet",
    domain="vision",
    summary="U-Net giving each pixel of random 3-channel images one of 2 classes; narrower in size test",
    parameters=31_037_698,  # 31,037,633 are published for one class, the second has 65
    **_sizes(default=(1, 256), test=(1, 64), gpu=(8, 512)),
    memory=_memory(train=(248, 1515), infer=(124, 506)),
    dataset_shapes=tuple(DATASET_SHAPES),
    smallest_resolution=16,
    build=_build_with("image_models", "unet"),
    check=batch_norm_check("unet", side=31),
)
VGG16 = Workload(
    name="vgg16",
    domain="vision",
    summary="VGG-16 classifying random 3-channel images into 1000 classes; narrow linear layers in size test",
    parameters=138_357_544,
    **_sizes(default=(4, 224), test=(1, 32), gpu=(64, 224)),
    memory=_memory(train=(1630, 74.3), infer=(553, 26.9)),
    dataset_shapes=("cifar10", "stl10", "pascal"),
    smallest_resolution=32,
    build=_build_with("image_models", "vgg16"),
)
