"""The archive of the proof kit names neither the machine nor its user."""

from __future__ import annotations

import gzip
import json
import tarfile
from typing import TYPE_CHECKING

import pytest

from samples.proof.archive import Redactor, pack, redact_smi

if TYPE_CHECKING:
    from pathlib import Path

REDACTOR = Redactor(hosts=["gpu-box.lan", "gpu-box"], users=["ann"], folders={"/data/kit": "out"})
SMI = """
==============NVSMI LOG==============
Timestamp                                 : Wed Nov 25 08:24:56 2026
Driver Version                            : 570.86.15
GPU 00000000:1B:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Serial Number                         : 1654923004567
    GPU UUID                              : GPU-1d2f1a2c-9c3e-4f4b-8a3b-0123456789ab
    GPU PDI                               : 0x8f2e3d4c5b6a7980
    VBIOS Version                         : 96.00.89.00.01
    Platform Info
        Chassis Serial Number             : 1821124110012
    Processes
        Process ID                        : 4711
            Type                          : C
            Name                          : /opt/secret/bin/train --for big-customer
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ann@GPU-BOX.lan:~/x/y.py", "USER@HOST:<path>/y.py"),
        ("annotation of annex on gpu-boxes", "annotation of annex on gpu-boxes"),
        ('File "/opt/conda/lib/torch/cuda.py", line 7', 'File "<path>/cuda.py", line 7'),
        ("file:/srv/a/b:/srv/c/d", "file:<path>/b:<path>/d"),
        ("/data/kit/store and /data/kitchen/x", "<out>/store and <path>/x"),
        ("https://docs.nvidia.com/nsight/index.html", "https://docs.nvidia.com/nsight/index.html"),
        (
            "12.5 GB/s of void at::native::foo<float, 4>(int)",
            "12.5 GB/s of void at::native::foo<float, 4>(int)",
        ),
        ("eth0:10.12.0.7<0> of NCCL 2.27.3.1", "eth0:***<0> of NCCL 2.27.3.1"),
        ("uuid=1d2f1a2c-9c3e-4f4b-8a3b-0123456789ab, GPU-7f6e5d4c3b2a1908", "uuid=***, ***"),
        ("HF_TOKEN=abcd1234", "HF_TOKEN=***"),
    ],
)
def test_names_paths_and_secrets_are_redacted(text: str, expected: str) -> None:
    assert REDACTOR(text) == expected


def test_what_nvidia_smi_prints_keeps_its_numbers_and_loses_its_identity() -> None:
    found = REDACTOR(redact_smi(SMI))
    for gone in ("1654923004567", "0123456789ab", "8f2e3d4c", "1821124110012", "secret", "customer"):
        assert gone not in found
    for kept in ("570.86.15", "NVIDIA H100 80GB HBM3", "96.00.89.00.01", "4711"):
        assert kept in found


def test_common_names_and_names_of_one_letter_are_words() -> None:
    assert (
        Redactor(hosts=["localhost", "h"], users=["root"], folders={})("root h localhost")
        == "root h localhost"
    )


def test_an_archive_holds_redacted_text_alone(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    (folder / "recipes" / "ann").mkdir(parents=True)
    (folder / "recipes" / "ann" / "stderr.txt").write_text("gpu-box failed\n")
    trace = {"host_name": "gpu-box", "traceName": "/home/ann/x.json"}
    (folder / "trace.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode()))
    (folder / "trace.nsys-rep").write_bytes(b"HOME=/home/ann")
    (folder / "nvidia-smi.txt").write_text(SMI)
    (folder / "cut.json.gz").write_bytes(gzip.compress(b"{}" * 99)[:20])
    (folder / "link.txt").symlink_to("/etc/hostname")
    archive = tmp_path / "proof.tar.gz"
    names = pack(archive, folder, REDACTOR)
    assert names == ["proof/nvidia-smi.txt", "proof/recipes/USER/stderr.txt", "proof/trace.json.gz"]
    with tarfile.open(archive) as tar:
        assert tar.getnames() == names
        assert {(one.uid, one.uname, one.gname, one.mtime) for one in tar} == {(0, "", "", 0)}
        content = tar.extractfile("proof/trace.json.gz")
        assert content is not None
        assert json.loads(gzip.decompress(content.read())) == {"host_name": "HOST", "traceName": "~/x.json"}
