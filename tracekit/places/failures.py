"""What object storage says when it refuses, in a line for people."""

from __future__ import annotations

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
"""What the services call a failure, and what that means."""
_LONGEST = 200


def reason(error: BaseException) -> str:
    """What a file system said, in one line; where a service's word for it is known, what that means.

    Example:
        >>> reason(OSError("AWS Error NETWORK_CONNECTION during ListObjectsV2 operation: curlCode: 7"))
        'the endpoint cannot be reached'
    """
    text = " ".join(str(error).split())
    said = next((meaning for word, meaning in _SAID.items() if word in text), text)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."
