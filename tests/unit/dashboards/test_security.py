from __future__ import annotations

import json
import logging
import re
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from fuzz.case import Case
from fuzz.readers.store import RUN, made_files
from tests.runs import make_run

pytest.importorskip("dash")

from dash import Dash
from tracekit.dashboards.app import create_app
from tracekit.dashboards.security import MAX_BODY_BYTES
from tracekit.dashboards.site import Site, View

from fuzz.readers.routes import make_callback
from tracekit.runs.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from flask.testing import FlaskClient

SESAME = "sesame"
UPDATE = "/_dash-update-component"
CALLBACKS = 300
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> FlaskClient:
    return client_of(Store(tmp_path_factory.mktemp("store")))


def client_of(store: Store, **options: object) -> FlaskClient:
    """A client of a dashboard over a store."""
    client: FlaskClient = create_app(store, **options).server.test_client()  # type: ignore[arg-type]
    return client


def test_health_is_told_by_its_body(client: FlaskClient) -> None:
    answer = client.get("/healthz")
    assert (answer.status_code, answer.text) == (200, "ok")


def test_an_unknown_path_shows_the_app(client: FlaskClient) -> None:
    answer = client.get("/no/such/page")
    assert answer.status_code == 200
    assert "_dash-config" in answer.text


@pytest.mark.parametrize(
    "host",
    [
        *("example.org", "127.0.0.1.example.org", "localhost@evil", "", "[::1", "evil@127.0.0.1"),
        *("evil:pw@127.0.0.1:8050", "127.0.0.1:80a", "127.0.0.1/x", "127.0.0.1#x", "a b", "[127.0.0.1]x"),
    ],
)
def test_a_foreign_host_is_refused(client: FlaskClient, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 400


def test_a_host_that_is_none_is_refused_where_any_is_served(store: Store) -> None:
    client = client_of(store, hosts=(), token=SESAME)
    assert client.get("/healthz", headers={"Host": "evil@gpu-7:8050"}).status_code == 400
    assert client.get("/healthz", headers={"Host": "gpu-7:8050"}).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8050", "LOCALHOST", "127.0.0.1:1"])
def test_this_machine_is_served(client: FlaskClient, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 200


def test_a_numbered_address_of_the_newer_kind_is_served(store: Store) -> None:
    client = client_of(store, hosts=("127.0.0.1", "::1"))
    assert client.get("/", headers={"Host": "[::1]:8050"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://example.org"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://[::1"},
        {"Origin": "https://127.0.0.1"},
        {"Origin": "file://127.0.0.1"},
        {"Origin": "http://127.0.0.1", "X-Forwarded-Proto": "https"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"), [("POST", UPDATE), ("POST", "/import?name=x.json"), ("DELETE", "/import/1")]
)
def test_another_site_cannot_act(
    client: FlaskClient, method: str, path: str, headers: dict[str, str]
) -> None:
    assert client.open(path, method=method, headers=headers, data=b"{}").status_code == 403


@pytest.mark.parametrize("proxied", [{}, {"X-Forwarded-Proto": "https"}])
def test_its_own_pages_can_act(client: FlaskClient, proxied: dict[str, str]) -> None:
    headers = {
        "Host": "127.0.0.1:8050",
        "Origin": f"{proxied.get('X-Forwarded-Proto', 'http')}://127.0.0.1:8050",
        "Sec-Fetch-Site": "same-origin",
        **proxied,
    }
    assert client.post("/import?name=", headers=headers).status_code == 422


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {}, 200),
        ("GET", "/assets/none.js", {}, 404),
        ("GET", "/", {"Host": "example.org"}, 400),
        ("POST", UPDATE, {"Origin": "http://example.org"}, 403),
        ("PUT", "/healthz", {}, 405),
        ("POST", UPDATE, {}, 400),
    ],
)
def test_every_answer_carries_the_headers(
    client: FlaskClient, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    answer = client.open(path, method=method, headers=headers)
    assert answer.status_code == status
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    assert "script-src 'self'" in answer.headers["Content-Security-Policy"]


def test_no_cache_keeps_data_of_runs(store: Store) -> None:
    run = make_run(store)
    paths = [
        "/",
        f"/kernels?run={run.id}",
        f"/export/{run.id}/kernels.zip",
        f"/timeline/{run.id}/draw?lanes=0",
    ]
    for options in ({}, {"hosts": (), "token": SESAME}):
        client = client_of(store, **options)
        client.get(f"/?token={SESAME}")
        kept = {path: client.get(path).headers["Cache-Control"] for path in paths}
        assert all("no-store" in kept[path] for path in paths[: None if options else 3]), kept
    script = re.search(r'src="(/bundle/[^"]+)"', client.get("/").text)
    assert script
    assert "immutable" in client.get(script[1]).headers["Cache-Control"]
    named = re.search(r'"(/bundle/plotly-[^"]+)"', client.get(script[1]).text)
    assert named
    plotly = client.get(named[1])
    assert "immutable" in plotly.headers["Cache-Control"]
    assert "MIT license" in plotly.text[:300]
    assert client.get("/bundle/plotly-whole-1.0.min.js").status_code == 404


def test_no_script_of_the_page_is_beyond_the_policy(client: FlaskClient) -> None:
    answer = client.get("/")
    policy = answer.headers["Content-Security-Policy"]
    script = policy.split("script-src")[1].split(";")[0]
    assert "unsafe" not in script
    assert "http" not in policy
    inline = re.findall(r"<script(?![^>]*\ssrc=)(?![^>]*application/json)[^>]*>", answer.text)
    assert len(inline) <= script.count("'sha256-")
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", answer.text)


def test_a_large_body_is_refused(client: FlaskClient) -> None:
    body = b" " * (MAX_BODY_BYTES + 1)
    assert client.post(UPDATE, data=body, content_type="application/json").status_code in {413, 400}
    answer = client.post("/import?name=x.json", data=body)
    assert answer.status_code == 413
    assert "slices" in answer.get_json()["hint"]


@pytest.mark.slow_except(4)
@pytest.mark.parametrize("name", ["../secret", "/etc", "..", ".", "", "a/b", "r\0", "x" * 100, ".tmp-1-ab"])
def test_a_run_is_looked_up_and_never_a_path(store: Store, name: str) -> None:
    make_run(store)
    outside = make_run(Store(store.path.parent / "secret"))
    site = Site(app=Dash(), store=store, pages={})
    assert site.run(name) is None
    assert site.run(f"../secret/{outside.path.name}") is None
    assert site.context(View(run=name or "x"), dark=False).chosen is None


def test_a_token_is_shown_once_and_then_remembered(store: Store) -> None:
    client = client_of(store, hosts=(), token=SESAME)
    assert client.get("/").status_code == 401
    assert client.get("/?token=wrong").status_code == 401
    assert client.get("/healthz").status_code == 200
    shown = client.get("/kernels?token=sesame&run=r1")
    assert (shown.status_code, shown.headers["Location"]) == (302, "/kernels?run=r1")
    cookie = shown.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert client.get("/").status_code == 200
    stranger = client_of(store, hosts=(), token=SESAME)
    stranger.set_cookie(cookie.partition("=")[0], "wrong")
    assert stranger.get("/").status_code == 401


@pytest.mark.parametrize(
    "path", ["//evil", "/%09/evil", "/%0a/evil", "/\\evil", "/%5cevil", "/%09%5c/evil", "/%2f/evil"]
)
def test_a_token_leads_nowhere_else(store: Store, path: str) -> None:
    client = client_of(store, hosts=(), token=SESAME)
    answer = client.get(f"{path}?token=sesame", base_url="http://127.0.0.1:8050")
    address = answer.headers.get("Location", "/").removeprefix("http://127.0.0.1:8050")
    assert re.fullmatch(r"/(?![/\\])[^\\\x00-\x20]*", address)


VIEW = {"id": "view", "property": "data", "value": {"path": "/", "search": ""}}
TOOLS = {"output": "tools.children", "outputs": {"id": "tools", "property": "children"}, "inputs": [VIEW]}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"[]",
        b"{}",
        json.dumps(TOOLS | {"output": "nothing.children"}).encode(),
        json.dumps(TOOLS | {"outputs": []}).encode(),
        json.dumps(TOOLS | {"inputs": []}).encode(),
        json.dumps(TOOLS | {"inputs": [VIEW | {"property": "other"}]}).encode(),
        json.dumps(TOOLS | {"inputs": [VIEW | {"value": {"path": 5, "search": ""}}]}).encode(),
        json.dumps(TOOLS | {"inputs": [VIEW | {"value": "/"}]}).encode(),
    ],
    ids=lambda body: body[-30:].decode(),
)
def test_a_malformed_callback_is_refused_without_a_traceback(
    client: FlaskClient, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    answer = client.post(UPDATE, data=body, content_type="application/json")
    assert answer.status_code == 400
    assert not caplog.records


def test_a_callback_is_answered(client: FlaskClient) -> None:
    assert client.post(UPDATE, json=TOOLS).status_code == 200


def test_the_run_list_is_refreshed_with_what_it_has_answered(store: Store) -> None:
    dash = create_app(store)
    output, callback = next((key, one) for key, one in dash.callback_map.items() if "runs-known.data" in key)
    outputs = [{"id": one.component_id, "property": one.component_property} for one in callback["output"]]

    def refresh(known: object) -> Any:
        sent = {
            name: [one | {"value": known if one["id"] == "runs-known" else None} for one in callback[name]]
            for name in ("inputs", "state")
        }
        return dash.server.test_client().post(UPDATE, json={"output": output, "outputs": outputs} | sent)

    known = refresh(None).json["response"]["runs-known"]["data"]
    assert refresh(known).status_code in {200, 204}
    assert refresh(known | {"fields": 5}).status_code == 400


@pytest.mark.slow
def test_callbacks_with_hostile_values_are_answered_or_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, statuses, outputs = tmp_path / "store" / RUN, Counter[int](), set()
    client = client_of(Store(tmp_path / "store"))
    for number in range(CALLBACKS):
        if not folder.exists():  # a callback may delete it
            Case(files=made_files(1), main="").write(folder)
        body = make_callback(Random(f"callback {number}"))
        answer = client.post(UPDATE, data=body, content_type="application/json")
        assert answer.status_code in {200, 204, 503} or 400 <= answer.status_code < 500, (
            number,
            body,
            answer.text[:500],
        )
        assert "Traceback" not in answer.text
        statuses[answer.status_code] += 1
        outputs.add(body.partition(b'"outputs"')[0])
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert min(statuses[200] + statuses[204], statuses[400]) > CALLBACKS // 10
    assert len(outputs) > 30
    assert [entry.name for entry in tmp_path.iterdir()] == ["store"]
