"""Connections to object storage, created on first use, and the meaning of the services' errors."""

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
"""Options of addresses, by scheme."""
_SWITCHES = {"anonymous", "force_virtual_addressing"}
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
CONNECT_SECONDS = 3.0
REQUEST_SECONDS = 4.0
"""Timeout without any data."""
ATTEMPTS = 3
RETRY_SECONDS = 4.0
"""Duration of retries in Google's client."""


def filesystem(scheme: str, bucket: str, options: tuple[tuple[str, str], ...]) -> pafs.FileSystem:
    """Return the file system of an address, with credentials from the environment.

    Raises:
        UnusableInputError: An option has an invalid value.
        OSError: It cannot be created.
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
        allow_delayed_open=True,  # one request for a small file instead of three
        connect_timeout=CONNECT_SECONDS,
        request_timeout=REQUEST_SECONDS,
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        **known,
    )


def _region_of(bucket: str) -> dict[str, str]:
    """Return the region of a bucket; nothing, for the client's default, if unknown."""
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
    """Return the options of the file system for an endpoint with or without scheme.

    Example:
        >>> _endpoint("http://127.0.0.1:9000/")
        {'endpoint_override': '127.0.0.1:9000', 'scheme': 'http'}
    """
    scheme, mark, host = url.rpartition("://")
    found = {"endpoint_override": host.rstrip("/")} if host else {}
    return {**found, "scheme": scheme} if mark else found


class RemoteError(OSError):
    """Object storage denied access or is unreachable."""


_SAID = {
    "NO_SUCH_BUCKET": "there is no such bucket",
    "NoSuchBucket": "there is no such bucket",
    "ACCESS_DENIED": "access is denied to these credentials, or there are none",
    "INVALID_ACCESS_KEY_ID": "the access key is unknown there",
    "SIGNATURE_DOES_NOT_MATCH": "the secret key is wrong",
    "INVALID_CLIENT_TOKEN_ID": "the access key is unknown there",
    "EXPIRED_TOKEN": "the session's credentials have expired",
    "ExpiredToken": "the session's credentials have expired",
    "NETWORK_CONNECTION": "the endpoint cannot be reached",
    "Could not connect to server": "the endpoint cannot be reached",
    "Could not create a OAuth2 access token": "no credentials of Google Cloud were found",
    "Could not resolve host": "the endpoint cannot be reached",
    "PERMISSION_DENIED": "access is denied to these credentials, or there are none",
    "UNAUTHENTICATED": "access is denied to these credentials, or there are none",
    "SLOW_DOWN": "the service asks to slow down",
    "PermanentRedirect": "the bucket is in another region; name it, as in ?region=eu-west-1",
}
"""Error codes of the services, and their meaning."""
_LONGEST = 200


def reason(error: BaseException) -> str:
    """Return the reason of an error in one line, with the meaning of known error codes.

    Example:
        >>> reason(OSError("AWS Error NETWORK_CONNECTION during ListObjectsV2 operation: curlCode: 7"))
        'the endpoint cannot be reached'
    """
    text = " ".join(str(error).split())
    said = next((meaning for word, meaning in _SAID.items() if word in text), text)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."
