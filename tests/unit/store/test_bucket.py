"""A bucket without keys: the tokens of a pod in a cloud, against stand-ins of STS, of the node's agent and of S3."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pytest

from understudy.store.bucket import Bucket

TOKEN = "token-of-the-pod"
ENDS = "2099-01-01T00:00:00Z"
ASSUMED = f"""<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>KEY-OF-THE-ROLE</AccessKeyId>
<SecretAccessKey>secret</SecretAccessKey><SessionToken>session</SessionToken><Expiration>{ENDS}</Expiration>
</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"""
OF_THE_AGENT = {"AccessKeyId": "KEY-OF-THE-AGENT", "SecretAccessKey": "s", "Token": "session", "Expiration": ENDS}


class Cloud(ThreadingHTTPServer):
    """STS, the agent of EKS Pod Identity, and a bucket with one file, at one address; and the keys that S3 saw."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.keys: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answers(BaseHTTPRequestHandler):
    server: Cloud

    def do_POST(self) -> None:  # STS
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        assert TOKEN in body
        self._respond(ASSUMED.encode(), "text/xml")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self.path == "/v1/credentials":
            assert self.headers["Authorization"] == TOKEN
            self._respond(json.dumps(OF_THE_AGENT).encode(), "application/json")
            return
        self.server.keys.append(self.headers["Authorization"].partition("Credential=")[2].partition("/")[0])
        self._respond(b"content", "binary/octet-stream")

    def _respond(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cloud]:
    server = Cloud()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.address)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / "token").write_text(TOKEN)
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    yield server
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    server.shutdown()
    server.server_close()


def test_a_role_of_the_pod_s_account_is_taken_by_its_projected_token(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """IAM roles for service accounts: EKS sets these two and mounts the token."""
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/understudy")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    assert Bucket("s3://bucket/prefix").read("file") == b"content"
    assert set(cloud.keys) == {"KEY-OF-THE-ROLE"}


def test_a_role_that_is_associated_with_the_pod_is_asked_for_at_the_node_s_agent(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """EKS Pod Identity: EKS sets these two and mounts the token; there the agent is at 169.254.170.23."""
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{cloud.address}/v1/credentials")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    assert Bucket("s3://bucket/prefix").read("file") == b"content"
    assert set(cloud.keys) == {"KEY-OF-THE-AGENT"}
