"""Who is answered, what the answers forbid, and that nothing of the machine is told."""

import pytest

from tokenwire.web import explorer

OWN = {"Host": "localhost:8050"}


@pytest.fixture(scope="module")
def client():
    return explorer().server.test_client()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (OWN, 200), ({"Host": "127.0.0.1:8050"}, 200), ({"Host": "[::1]:8050"}, 200), ({"Host": "evil.example:8050"}, 421),
        ({"Host": "localhost:8051"}, 421), ({"Host": "localhost"}, 421), ({**OWN, "Origin": "http://localhost:8050"}, 200),
        ({**OWN, "Origin": "http://evil.example"}, 403), ({**OWN, "Origin": "null"}, 403), ({**OWN, "Origin": "https://localhost:8050"}, 403),
    ],
)  # fmt: skip
def test_only_its_own_pages_are_answered(client, headers, status) -> None:
    assert client.get("/", headers=headers).status_code == status


def test_scripts_of_others_are_forbidden(client) -> None:
    sent = client.get("/", headers=OWN).headers
    policy = sent["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'self' 'sha256-" in policy
    assert sent["X-Frame-Options"] == "DENY"
    assert sent["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("path", ["/assets/../serving.py", "/assets/%2e%2e/serving.py", "/assets//etc/passwd", "/_dash-component-suites/tokenwire/web/serving.py", "/_dash-component-suites/../../../etc/passwd", "/csv/words/..%2f..%2fpasswd", "/csv/passwd/words"])
def test_no_path_of_the_machine_is_readable(client, path) -> None:
    answer = client.get(path, headers=OWN)
    assert b"tokenwire.errors" not in answer.data
    assert b"root:" not in answer.data
    assert answer.status_code in (400, 404) or b"_dash-config" in answer.data


def test_requests_are_bounded(client) -> None:
    answer = client.post("/_dash-update-component", headers=OWN, data=b"x" * (2 << 20), content_type="application/json")
    assert answer.status_code == 413


def test_a_broken_request_tells_nothing(client) -> None:
    answer = client.post("/_dash-update-component", headers=OWN, data=b"{", content_type="application/json")
    assert answer.status_code in (400, 500)
    assert b"Traceback" not in answer.data
    assert b"/work" not in answer.data


def test_downloads_are_what_the_command_line_writes(client, tmp_path) -> None:
    from tokenwire.journey import Journey
    from tokenwire.report.scenes import Walk, capture

    capture(Walk(Journey.read(None), token=7), str(tmp_path / "a.pcap"))
    assert client.get("/pcap?token=7", headers=OWN).data == (tmp_path / "a.pcap").read_bytes()
    events = client.get("/trace", headers=OWN).get_json()["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) >= 16  # two stages, four micro-batches, forward and backward
    text = client.get("/csv/tokens/tokens", headers=OWN).data.decode()
    assert text.startswith("index,id,text,start,end,in_vocabulary\n0,")


@pytest.mark.parametrize(
    ("path", "said"),
    [("/csv/words/nothing", "the page has"), ("/csv/nothing/words", "none of that name"), ("/pcap?token=99999", "tokens 0 to"),
     ("/pcap?set=cluster.gpus%3D1&set=plan.tp%3D1&set=plan.pp%3D1", "nothing is sent"), ("/trace?set=plan.tp%3D3", "tp = 3"), ("/trace?x=1", "known are")],
)  # fmt: skip
def test_a_download_that_cannot_be_is_one_line(client, path: str, said: str) -> None:
    answer = client.get(path, headers=OWN)
    assert answer.status_code == 400
    assert said in answer.data.decode()
    assert answer.data.decode().count("\n") == 1


def test_where_files_lie_is_not_shown(tmp_path) -> None:
    own = tmp_path / "own.txt"
    own.write_text("una selva oscura e una via\n" * 40)
    there = explorer(None, [f'text.source="{own}"']).server.test_client()
    for page in ("words", "tokens", "compare"):
        answer = there.post("/_dash-update-component", headers={**OWN, "Origin": "http://localhost:8050"}, json=_asked(f"/{page}"))
        assert answer.status_code == 200
        assert str(tmp_path) not in answer.data.decode().replace("\\u002f", "/")
    assert str(tmp_path) not in there.get("/csv/compare/configuration", headers=OWN).data.decode()


def _asked(path: str) -> dict:
    outputs = [("main", "children"), ("walk", "children"), ("bar", "children"), ("poll", "disabled")]
    return {
        "output": ".." + "...".join(f"{one}.{prop}" for one, prop in outputs) + "..", "outputs": [{"id": one, "property": prop} for one, prop in outputs],
        "inputs": [{"id": "url", "property": "pathname", "value": path}, {"id": "url", "property": "search", "value": ""}, {"id": "poll", "property": "n_intervals", "value": 0}],
        "changedPropIds": ["url.pathname"], "state": [],
    }  # fmt: skip
