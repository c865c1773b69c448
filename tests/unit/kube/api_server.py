"""An API server over TLS that issues and reviews tokens; tests/cluster asks the real one."""

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

KEY = "the API server's own, which only it can check"
API = "https://kubernetes.default.svc"
POD = {"name": "driver-0", "uid": "0123"}


class ApiServer(ThreadingHTTPServer):
    """Issues tokens to service accounts and reviews them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.folder = folder
        self.gone: set[str] = set()
        """Tokens of pods that are gone."""
        self.reviews = 0
        self.status = 201
        self.knows_audiences = True
        certificate = write_certificate(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        (folder / "token").write_text(self.issue("understudy:understudy-pipeline", API) + "\n")

    @property
    def environment(self) -> dict[str, str]:
        """Of a pod in this cluster."""
        return {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.server_address[1]),
            "UNDERSTUDY_SERVICE_ACCOUNT": str(self.folder),
        }

    def issue(self, account: str, audience: str = "mlflow", life: float = 3600) -> str:
        """A token of NAMESPACE:NAME."""
        namespace, name = account.split(":")
        whose = {"namespace": namespace, "serviceaccount": {"name": name}, "pod": POD}
        now = time.time()
        times = {"iat": now, "exp": now + life, "jti": str(time.monotonic_ns())}
        claims = {"iss": API, "aud": [audience], "sub": f"system:serviceaccount:{account}", **times}
        return jwt.encode({**claims, "kubernetes.io": whose}, KEY.ljust(64), "HS512")

    def review(self, spec: dict[str, Any]) -> dict[str, Any]:
        self.reviews += 1
        audiences = spec["audiences"] if self.knows_audiences else None
        options = {"verify_aud": self.knows_audiences}
        try:
            claims = jwt.decode(spec["token"], KEY.ljust(64), ["HS512"], audience=audiences, options=options)
        except jwt.PyJWTError as error:
            return {"error": str(error)}
        if spec["token"] in self.gone:
            return {"error": "the pod is gone"}
        granted = {"audiences": claims["aud"]} if self.knows_audiences else {}
        return {"authenticated": True, "user": {"username": claims["sub"]}, **granted}


class Answers(BaseHTTPRequestHandler):
    server: ApiServer

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        token = self.headers["Authorization"].removeprefix("Bearer ")
        assert jwt.decode(token, KEY.ljust(64), ["HS512"], audience=API)
        if self.path.endswith("/tokenreviews"):
            answer = {"status": self.server.review(request["spec"])}
        else:
            _, _, _, _, namespace, _, name, _ = self.path.split("/")
            life = request["spec"]["expirationSeconds"]
            issued = self.server.issue(f"{namespace}:{name}", request["spec"]["audiences"][0], life)
            answer = {"status": {"token": issued}, "spec": request["spec"]}
        body = json.dumps(answer).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def write_certificate(folder: Path) -> Path:
    """A certificate for 127.0.0.1 that signs itself, as a pod's ca.crt, and the file with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "api-server")])
    now = datetime.now(UTC)
    built = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    built = built.serial_number(1).not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    built = built.add_extension(address, critical=False)
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    certificate = built.sign(key, SHA256()).public_bytes(Encoding.PEM)
    (folder / "ca.crt").write_bytes(certificate)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "server.pem").write_bytes(private + certificate)
    return folder / "server.pem"


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    with ApiServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
