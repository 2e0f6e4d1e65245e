r"""Names and forms by which secrets are recognized: patterns only, applied by `tracekit.runs.scrubbing`.

Forms of tokens follow the prefixes that their issuers publish. Forms without a prefix of their own, such as
40 hexadecimal digits, are left out: commits and checksums have them, too.
"""

from __future__ import annotations

import re

_ALONE = frozenset({"secret", "secrets", "pwd", "pw", "credential", "credentials", "cookie"})
_ENDS = re.compile(
    r"(?:password|passwd|passphrase|sshpass|pgpass|apikey|accesskey|secretkey|privatekey"
    r"|(?:access|api|auth|bearer|github|gitlab|hf|refresh|session)token)\Z"
)
"""Ends of words that are written together, as in `PGPASSWORD`."""
_KINDS_OF_KEY = frozenset(
    {
        *("access", "account", "api", "auth", "encryption", "license", "master", "private", "secret"),
        *("session", "shared", "signing", "ssh", "subscription", "wandb"),
    }
)
_KINDS_OF_PASS = frozenset(
    {"admin", "db", "ftp", "mysql", "pg", "postgres", "proxy", "redis", "root", "smtp", "sudo", "user"}
)
_OF_TEXT = frozenset(
    {"bos", "cls", "eos", "image", "mask", "next", "pad", "per", "sep", "special", "start", "stop", "unk"}
)
"""Words before "token" that denote tokens of language models."""
_SWITCHES = frozenset(
    {"allow", "disable", "enable", "has", "no", "require", "skip", "use", "with", "without"}
)
"""Words that make an option a switch, without a value."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_secret(name: str) -> bool:
    """Return whether an option or variable of this name contains a secret.

    Example:
        >>> [is_secret(name) for name in ("--hf-token", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "apiKey")]
        [True, True, True, True]
        >>> [is_secret(name) for name in ("--tokenizer", "--max-tokens", "pad_token", "--no-auth", "--pass")]
        [False, False, False, False, False]
    """
    return any(_is_secret(spelled.lower()) for spelled in (name, _CAMEL.sub("_", name)))


def _is_secret(name: str) -> bool:
    parts = [part for part in re.split(r"[^a-z0-9]+", name) if part]
    if not parts or parts[0] in _SWITCHES:
        return False
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    if last == "id" and before == "key":
        return len(parts) > 2 and parts[-3] == "access"
    kinds = {
        "auth": True,
        "key": before in _KINDS_OF_KEY,
        "pass": before in _KINDS_OF_PASS,
        "token": before not in _OF_TEXT,
    }
    return last in _ALONE or kinds.get(last, False) or _ENDS.search(last) is not None


_NAMES = "token|secret|pass|pw|key|credential|auth|cookie"
NAMES = (
    *("token", "secret", "passw", "passphrase", "pass=", "pass:", "pwd", "pw=", "key", "credential"),
    *("auth", "cookie"),
)
"""Parts of texts that may assign a secret to a name."""

_PEM = r"[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)?-----"
_GITLAB = ("agent", "cbt", "dt", "ffct", "ft", "imt", "oas", "pat", "ptt", "rt", "soat")
COMMON: tuple[tuple[tuple[str, ...], str], ...] = (
    (("hf_", "api_org_"), r"(?:hf|api_org)_[A-Za-z0-9]{20,}"),
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"gh[pousr]_[A-Za-z0-9]{20,}"),
    (("github_pat_",), r"github_pat_[A-Za-z0-9_]{20,}"),
    (tuple(f"gl{kind}-" for kind in _GITLAB), rf"gl(?:{'|'.join(_GITLAB)})-[A-Za-z0-9_.-]{{16,}}"),
    (("akia", "asia"), r"(?:AKIA|ASIA)[A-Z0-9]{16}"),
    (("aiza",), r"AIza[\w-]{35}"),
    (("ya29.",), r"ya29\.[\w-]{20,}"),
    (("xox", "xapp-"), r"(?i:(?:xoxe\.)?xox[abeoprs]-[a-z0-9-]{7,}|xapp-\d-[a-z0-9-]{5,})"),
    (("hooks.slack.com/",), r"hooks\.slack\.com/(?:services|workflows|triggers)/[\w+/-]{10,}"),
    (("/webhooks/",), r"discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d+/[\w-]{20,}"),
    (("sk-",), r"sk-[A-Za-z0-9_-]{20,}"),
    (("k_live_", "k_test_", "k_prod_"), r"[sr]k_(?:live|test|prod)_[A-Za-z0-9]{10,}"),
    (("npm_",), r"(?i:npm_[a-z0-9]{30,})"),
    (("pypi-",), r"pypi-[\w-]{40,}"),
    (("dckr_",), r"dckr_[po]at_[\w-]{20,}"),
    (("nvapi-",), r"nvapi-[\w-]{20,}"),
    (("dapi",), r"dapi[a-f0-9]{32}(?:-\d)?"),
    (("r8_",), r"r8_[A-Za-z0-9]{30,}"),
    (("eyj",), r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    (("private key",), rf"-----BEGIN{_PEM}(?:(?:(?!-----)[\s\S])*-----END{_PEM}|(?:(?!-----)[^\"'<>])*)"),
)
"""Forms of tokens: parts of which one occurs in lower case, and the pattern."""
RARE: tuple[tuple[tuple[str, ...], str], ...] = (
    (("gr1348941",), r"GR1348941[\w-]{20,}"),
    (("_gitlab_session=",), r"_gitlab_session=[0-9a-z]{32}"),
    (("abia", "acca", "a3t"), r"(?:ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{16}"),
    (("absk", "bedrock-api-key-"), r"(?:ABSK|bedrock-api-key-)[A-Za-z0-9+/=.]{24,}"),
    ((".webhook.office.com/",), r"[a-z0-9]+\.webhook\.office\.com/webhookb2/[\w@/-]{20,}"),
    (("ey",), r"ey[A-Za-z0-9]{17,}\.ey[A-Za-z0-9/\\_-]{17,}\.[A-Za-z0-9/\\_-]*={0,2}"),
    (("zxlk",), r"ZXlK[A-Za-z0-9+/=_\\-]{40,}"),
    (("a3-",), r"A3-[A-Z0-9]{6}-[A-Z0-9]{5,6}-?[A-Z0-9]{5,6}-[A-Z0-9]{5}-[A-Z0-9]{5}(?:-[A-Z0-9]{5})?"),
    (("ops_eyj", "eyjrijoi"), r"(?:ops_eyJ|(?i:eyJrIjoi))[A-Za-z0-9+/]{60,}={0,3}"),
    (("p8e-",), r"p8e-[A-Za-z0-9]{32}"),
    (("age-secret-key-1",), r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    (("pat",), r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    (("pat.", "sat."), r"[ps]at\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}"),
    (("ltai",), r"LTAI[A-Za-z0-9]{20}"),
    (("akcp", "cmvmd"), r"AKCp[A-Za-z0-9]{69}|cmVmd[A-Za-z0-9]{59}"),
    (
        (".acc_", ".acc-"),
        r"(?:sc|ext|scauth|authress)_[A-Za-z0-9]+\.[A-Za-z0-9]+\.acc[_-][\w-]{10,32}\.[\w+/=-]{30,}",
    ),
    (("q~",), r"[\w~.]{3}\dQ~[\w~.-]{31,34}"),
    (("4b1d",), r"4b1d[A-Za-z0-9]{38}"),
    (("clojars_",), r"(?i:CLOJARS_[a-z0-9]{60})"),
    (("v1.0-",), r"v1\.0-[a-f0-9]{24}-[a-f0-9]{146}"),
    (("doo_v1_", "dop_v1_", "dor_v1_"), r"(?i:do[opr]_v1_[a-f0-9]{64})"),
    (("dp.pt.",), r"dp\.pt\.[A-Za-z0-9]{43}"),
    (("duffel_",), r"duffel_(?:test|live)_[\w=-]{43}"),
    (("dt0c01.",), r"dt0c01\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{64}"),
    (("ezak", "eztk"), r"EZ[AT]K[A-Za-z0-9]{54}"),
    (("eaa",), r"EAA[MC][A-Za-z0-9]{100,}|EAAA[\w-]{22,60}"),
    (("sq0atp-",), r"sq0atp-[\w-]{22,60}"),
    (("flwseck", "flwpubk"), r"FLW(?:SEC|PUB)K(?:_TEST)?-[A-Za-z0-9]{12,}(?:-X)?"),
    (("fo1_", "fm1", "fm2_"), r"(?:fo1|fm1[ar]|fm2)_[\w+/=-]{43,}"),
    (("fio-u-",), r"fio-u-[\w=-]{64}"),
    (("glc_", "glsa_"), r"(?i:gl(?:c|sa)_[a-z0-9+/_]{32,}={0,3})"),
    ((".atlasv1.",), r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{60,70}"),
    (("hrku-",), r"HRKU-[\w-]{40,}"),
    (("ico-",), r"ico-[A-Za-z0-9]{32}"),
    (("s-s4t2",), r"s-s4t2(?:ud|af)-[A-Fa-f0-9]{64}"),
    (("lin_api_",), r"lin_api_[A-Za-z0-9]{40}"),
    (("_mmk",), r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
    (("ntn_",), r"ntn_[A-Za-z0-9]{40,}"),
    (("api-",), r"API-[A-Z0-9]{26}"),
    (("sha256~",), r"sha256~[\w-]{43}"),
    (("pplx-",), r"pplx-[A-Za-z0-9]{48}"),
    (("pscale_",), r"(?i:pscale_(?:tkn|oauth|pw)_[\w=.-]{32,64})"),
    (("pmak-",), r"PMAK-[A-Fa-f0-9]{24}-[A-Fa-f0-9]{34}"),
    (("pnu_", "rdme_"), r"(?:pnu_[A-Za-z0-9]{36}|rdme_[a-z0-9]{70})"),
    (("pul-",), r"pul-[a-f0-9]{40}"),
    (("rubygems_",), r"rubygems_[a-f0-9]{48}"),
    (("tk-us-",), r"tk-us-[\w-]{48}"),
    (("sg.",), r"SG\.[\w=.-]{66}"),
    (("xkeysib-",), r"xkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}"),
    (("sntrys_", "sntryu_"), r"sntry[su]_[A-Za-z0-9+/=_]{64,}"),
    (("sm_aat_", "sm_pat_", "sm_sat_"), r"sm_[aps]at_[A-Za-z0-9]{16}"),
    (("shippo_",), r"shippo_(?:live|test)_[A-Fa-f0-9]{40}"),
    (("shpat_", "shpca_", "shppa_", "shpss_"), r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}"),
    (("sgp_",), r"(?i:sgp_(?:(?:[a-f0-9]{16}|local)_)?[a-f0-9]{40})"),
    (("sk",), r"SK[0-9A-Fa-f]{32}"),
    (("hvb.", "hvs."), r"hv[bs]\.[\w-]{90,}"),
)
"""Forms that cost time to look for, and are hardly ever in names of kernels and functions."""

URL = (
    r"(?<![A-Za-z0-9+.-])([A-Za-z0-9+.-]++://)"
    r"(?:(?!\[)[^\s'\"<>:/]*:(?!\d{1,5}(?:[/?#]|\Z))(?:(?!://)[^\s'\"<>])*|[^/\s@'\"<>:]+)@"
)
"""User part of a URL; with a password, up to the last @, as a password may contain `/` and `@`."""
HEADER = (
    r"(?i)\b(authorization\\?[\"']?\s*[:=]\s*\\?[\"']?)"
    r"(?:(?!-)[\w-]+[ \t]+(?![\w+.-]*://|-))?"
    r"(?:[\w-]+=\\?\"[^\"]*\"|[^\s\"',;]+)(?:,\s*[\w-]+=(?:\\?\"[^\"]*\"|[^\s\"',]+))*"
)
"""Value of an `Authorization` header, of any scheme, with its parameters."""
BEARER = r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{6,}"
COOKIE = (
    r"(?i)\b((?:set-)?cookie\\?[\"']?\s{0,4}:\s{0,4}\\?[\"']?)"
    r"[^\s=;:\"']{1,256}=[^\s;\"']*(?:;\s{0,4}[^\s=;\"']{1,256}=[^\s;\"']*)*"
)
PARAMETER = (
    r"(?i)([?&](?:x-(?:amz|goog)-(?:signature|credential|security-token)|sig|signature|awsaccesskeyid"
    r"|googleaccessid|key-pair-id|policy|key)=)[^\s&#\"'<>]+"
)
"""Parameters that sign a URL."""
PARAMETERS = (
    "sig=",
    "signature=",
    "credential=",
    "keyid=",
    "accessid=",
    "pair-id=",
    "policy=",
    "key=",
    "y-token=",
)
ASSIGNED = (
    rf"(?i)(?<![\w.-])(?=[\w.-]*?(?:{_NAMES}))([\w.-]++)"
    r"(\\?[\"']?\s?(?:=>?|:(?!:))\s?[ \t]{0,4})"
    r"(?:(?P<open>\\?[\"'])(?:(?!(?P=open))(?:\\.|[^\\])){1,4096}(?=(?P=open))|([\"']?)[^\s\"'&;,)\]}]{4,})"
)
PAIR = r"(?!\$|\d+:\d+(?!\S))[^\s:\"'/=]+:(?!//)[^\s\"']+"
"""Name and password of the option -u; numbers are ids of a user and a group, and a URL is none."""
PAIR_OPTIONS = frozenset({"-u", "-U", "--user", "--proxy-user"})
PAIR_OPTION = (
    r"(?<!\S)((?:-[uU]|--user|--proxy-user)(?:=|[ \t]{1,5}|(?<=-[uU])))"
    rf"(?:\"[^\":]*:[^\"]*\"|'[^':]*:[^']*'|{PAIR})"
)

_NAME = r"[^/\\\s:\"',;)(]+"
_SPACED = rf"(?:\\ {_NAME}|(?: [A-Z]{_NAME})+(?=[/\\]|\Z))*"
"""Further words of a name of a folder, as in `/Users/First Last/x`."""
_MOUNTS = (
    r"(?:(?<![\w.~/-])/(?:beegfs|ceph|cluster|data|export|fs\w*|gpfs|hpc|lustre|media|mnt|net|nfs|scratch|shared?"
    r"|srv|storage|var|vol\w*|work)(?:/[\w.-]+)??)?"
)
FOLDER = (
    rf"(?<![\w.~-]){_MOUNTS}/(?:home|Users)/{_NAME}{_SPACED}"
    rf"|(?<!\w)[A-Za-z]:(?:\\{{1,2}}|/)Users(?:\\{{1,2}}|/){_NAME}{_SPACED}"
)
HOME_OF = r"(?<![^\s=:\"',;(])~[a-z_][\w.-]*(?=/)"
"""A home folder by its owner's name, as in `~ann/x`."""
COMMAND_HOME_OF = r"(?<![^\s=:\"',;(])~[a-z_][\w-]*(?=/|[\s\"',;)]|\Z)"
_NO_USER = r"(?!(?:git|root|ubuntu|ec2-user)@)"
_NO_HOST = r"(?!(?:sha256|latest|main|master|next|beta|stable|dev|v\d[\w.-]*)(?![\w.-]))"
ACCOUNT = (
    rf"(?<![\w.+/@~-]){_NO_USER}[A-Za-z_][\w.+-]*@"
    rf"(?={_NO_HOST}[A-Za-z][A-Za-z0-9-]*(?:\.[A-Za-z0-9-]+)*(?:[\s\"',;)]|:(?!//)|\Z))"
)
"""Name of an account at a host, as in `ann@gpu-box`; not a requirement of pip, as in `torch@https://x.org/y.whl`."""
