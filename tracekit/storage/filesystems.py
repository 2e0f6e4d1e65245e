"""Connections to object storage, created on first use, and the meaning of the services' errors."""

from __future__ import annotations

import os
from contextlib import suppress
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

    Args:
        scheme: `s3` or `gs`.
        bucket: The bucket, whose region is looked up if it is not given.
        options: Options of the address, by name.

    Raises:
        UnusableInputError: An option has an invalid value.
        OSError: It cannot be created.
    """
    if scheme == "gs":
        return _gs(options)
    endpoint, region = (
        next((os.environ[name] for name in names if os.environ.get(name)), "")
        for names in (_ENDPOINTS, _REGIONS)
    )
    return _s3(bucket, options, endpoint, region)


@cache  # the environment is an argument, as tests and programs may change it
def _s3(bucket: str, options: tuple[tuple[str, str], ...], endpoint: str, region: str) -> pafs.FileSystem:
    from pyarrow import fs as pafs

    arguments = _arguments(options, endpoint)
    if "region" not in arguments and not region and not arguments.get("endpoint_override"):
        with suppress(OSError):  # else the client's default
            arguments["region"] = pafs.resolve_s3_region(bucket)
    return pafs.S3FileSystem(
        allow_delayed_open=True,  # one request for a small file instead of three
        connect_timeout=CONNECT_SECONDS,
        request_timeout=REQUEST_SECONDS,
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        **arguments,
    )


@cache
def _gs(options: tuple[tuple[str, str], ...]) -> pafs.FileSystem:
    from datetime import timedelta

    from pyarrow import fs as pafs

    return pafs.GcsFileSystem(retry_time_limit=timedelta(seconds=RETRY_SECONDS), **_arguments(options, ""))


def _arguments(options: tuple[tuple[str, str], ...], endpoint: str) -> dict[str, Any]:
    """Return the arguments of a file system for the options of an address."""
    named: dict[str, Any] = {
        name: _parse_switch(name, value) if name in _SWITCHES else value for name, value in options
    }
    scheme, separator, host = named.pop("endpoint_override", endpoint).rpartition("://")
    arguments = {"endpoint_override": host.rstrip("/")} if host else {}
    return {**arguments, **({"scheme": scheme} if separator else {}), **named}


def _parse_switch(name: str, value: str) -> bool:
    values = {"true": True, "1": True, "": True, "false": False, "0": False}
    if value.lower() not in values:
        raise UnusableInputError(f"{name}={value[:40]} in a URL is neither true nor false")
    return values[value.lower()]


class RemoteError(OSError):
    """Object storage denied access or is unreachable."""


_MEANINGS = {
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
_MAX_CHARS = 200


def reason(error: BaseException) -> str:
    """Return the reason of an error in one line, with the meaning of known error codes.

    Example:
        >>> reason(OSError("AWS Error NETWORK_CONNECTION during ListObjectsV2 operation: curlCode: 7"))
        'the endpoint cannot be reached'
    """
    text = " ".join(str(error).split())
    text = next((meaning for code, meaning in _MEANINGS.items() if code in text), text)
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}..."
