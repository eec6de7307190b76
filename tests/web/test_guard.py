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


@pytest.mark.parametrize("path", ["/assets/../serving.py", "/assets/%2e%2e/serving.py", "/assets//etc/passwd", "/_dash-component-suites/tokenwire/web/serving.py", "/csv/words/..%2f..%2fpasswd", "/csv/passwd/words"])
def test_no_path_of_the_machine_is_readable(client, path) -> None:
    answer = client.get(path, headers=OWN)
    assert b"tokenwire.errors" not in answer.data
    assert b"root:" not in answer.data
    assert answer.status_code in (400, 404, 500) or b"_dash-config" in answer.data


def test_requests_are_bounded(client) -> None:
    answer = client.post("/_dash-update-component", headers=OWN, data=b"x" * (2 << 20), content_type="application/json")
    assert answer.status_code == 413


def test_a_broken_request_tells_nothing(client) -> None:
    answer = client.post("/_dash-update-component", headers=OWN, data=b"{", content_type="application/json")
    assert answer.status_code in (400, 500)
    assert b"Traceback" not in answer.data
    assert b"/work" not in answer.data
