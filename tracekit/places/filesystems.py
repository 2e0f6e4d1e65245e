"""Connections to object storage: one for each kind and options, made when first asked for."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from tracekit.errors import UnusableInputError

if TYPE_CHECKING:
    import pyarrow.fs as pafs

OPTIONS = {
    "s3": (
        "anonymous",
        "endpoint_override",
        "force_virtual_addressing",
        "region",
        "scheme",
        "tls_ca_file_path",
    ),
    "gs": ("anonymous", "endpoint_override", "project_id", "scheme"),
}
"""What an address may say behind its `?`, by kind."""
_SWITCHES = {"anonymous", "force_virtual_addressing"}
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
CONNECT_SECONDS = 3.0
REQUEST_SECONDS = 4.0
"""How long nothing at all may come; a slow answer is waited for."""
ATTEMPTS = 3
RETRY_SECONDS = 4.0
"""How long Google's client tries again what failed."""


def filesystem(scheme: str, bucket: str, options: tuple[tuple[str, str], ...]) -> pafs.FileSystem:
    """The file system of an address; the credentials are those of the usual places.

    Raises:
        UnusableInputError: An option has a value that it cannot have.
        OSError: It cannot be set up.
    """
    if scheme == "gs":
        return _gs(options)
    return _s3(bucket, options, _first(_ENDPOINTS), _first(_REGIONS))


def _first(names: tuple[str, ...]) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


@cache
def _s3(bucket: str, options: tuple[tuple[str, str], ...], endpoint: str, region: str) -> pafs.FileSystem:
    from pyarrow import fs as pafs

    known: dict[str, Any] = _typed(options)
    known = {**_endpoint(known.pop("endpoint_override", endpoint)), **known}
    if "region" not in known and not region and not known.get("endpoint_override"):
        known |= _region_of(bucket)
    return pafs.S3FileSystem(
        allow_delayed_open=True,  # a small file is one request then, not three
        connect_timeout=CONNECT_SECONDS,
        request_timeout=REQUEST_SECONDS,
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        **known,
    )


def _region_of(bucket: str) -> dict[str, str]:
    """Where a bucket is, as Amazon says; nothing where it does not, and the client's own default is taken."""
    from pyarrow import fs as pafs

    try:
        return {"region": pafs.resolve_s3_region(bucket)}
    except OSError:
        return {}


@cache
def _gs(options: tuple[tuple[str, str], ...]) -> pafs.FileSystem:
    from datetime import timedelta

    from pyarrow import fs as pafs

    known = _typed(options)
    known = {**_endpoint(known.pop("endpoint_override", "")), **known}
    return pafs.GcsFileSystem(retry_time_limit=timedelta(seconds=RETRY_SECONDS), **known)


def _typed(options: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    return {name: _switch(name, value) if name in _SWITCHES else value for name, value in options}


def _switch(name: str, value: str) -> bool:
    words = {"true": True, "1": True, "": True, "false": False, "0": False}
    if value.lower() not in words:
        raise UnusableInputError(f"{name}={value[:40]} in a URL is neither true nor false")
    return words[value.lower()]


def _endpoint(url: str) -> dict[str, str]:
    """An endpoint with or without its scheme, as the file system wants it.

    Example:
        >>> _endpoint("http://127.0.0.1:9000/")
        {'endpoint_override': '127.0.0.1:9000', 'scheme': 'http'}
    """
    scheme, mark, host = url.rpartition("://")
    found = {"endpoint_override": host.rstrip("/")} if host else {}
    return {**found, "scheme": scheme} if mark else found
