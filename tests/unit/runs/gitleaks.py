"""Public rules of gitleaks, which find secrets; their source and licence are in `gitleaks.json`."""

from __future__ import annotations

import json
import re
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

RULES: dict[str, str] = json.loads(Path(__file__).with_name("gitleaks.json").read_text())["rules"]
"""Public rules of gitleaks, by id; source and licence are in the file."""
BY_NAME = r"[\w.-]{0,50}?"
"""Start of a rule that finds a secret by a name before it."""
UNKNOWN = {
    "facebook-access-token": "digits and a bar",
    "freemius-secret-key": "a name in any mix of capitals",
    "kubernetes-secret-yaml": "any name, in a file",
    "nuget-config-password": "any value, in a file",
    "sourcegraph-access-token": "40 hexadecimal digits, as a commit",
    "vault-service-token": "`s.` and 24 letters, as a name in code",
}
"""Rules that match what is not redacted, and why."""
LOOSE = {
    "curl-auth-header": 'curl -H "Authorization: Bearer ' + "a1B2" * 5 + '" https://example.org',
    "curl-auth-user": 'curl -u "ann:' + "a1B2" * 5 + '" https://example.org',
    "private-key": "-----BEGIN EC PRIVATE KEY-----\n" + "a1B2" * 20 + "\n-----END EC PRIVATE KEY-----",
    "slack-config-access-token": "xoxe.xoxp-1-" + "A1B2" * 41,
    "slack-webhook-url": "https://hooks.slack.com/services/" + "a1B2" * 11,
}
"""Rules that also match what is no secret, and an example of one."""


def formed(rule: str) -> st.SearchStrategy[str]:
    """Printable texts that a rule matches."""
    if rule in LOOSE:
        return st.just(LOOSE[rule])
    printable = st.characters(min_codepoint=32, max_codepoint=126)
    return st.from_regex(re.compile(RULES[rule], re.ASCII), fullmatch=True, alphabet=printable)


def example(rule: str) -> str:
    """A text that a rule matches, the same each time."""
    made: list[str] = []

    @seed(0)
    @settings(
        max_examples=3,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
        deadline=None,
    )
    @given(formed(rule))
    def make(text: str) -> None:
        made.append(text)

    make()
    return made[-1]
