"""An issuer of ID tokens (OpenID Connect) with its configuration and its keys over HTTP."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

AUDIENCE = "registry"


class Issuer(ThreadingHTTPServer):
    """Signs tokens with RS256."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.says: dict[str, Any] = {"issuer": self.address, "jwks_uri": f"{self.address}/keys"}

    def issue(self, name: str, *groups: str, key: Any = None, algorithm: str = "RS256", **changed: Any) -> str:
        """A person's token; a claim that is changed to None is left out."""
        times = {"iat": time.time(), "exp": time.time() + 600}
        claims = {"iss": self.address, "aud": AUDIENCE, "sub": name, "groups": list(groups), **times, **changed}
        present = {claim: value for claim, value in claims.items() if value is not None}
        return jwt.encode(present, key or self.key, algorithm, headers={"kid": "one"})

    @property
    def keys(self) -> dict[str, Any]:
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**public, "kid": "one", "use": "sig", "alg": "RS256"}]}


class Answers(BaseHTTPRequestHandler):
    server: Issuer

    def do_GET(self) -> None:
        body = json.dumps(self.server.keys if self.path == "/keys" else self.server.says).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def issuer() -> Iterator[Issuer]:
    with Issuer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
