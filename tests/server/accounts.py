"""The accounts of a server as the manifests deploy it, and its answers to each of them."""

import base64
import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.registry.reviewers import key_pair
from tests.registry.submitted import Server

COMMAND = ("understudy_server.app",)
ADMIN, TRAINER, REVIEWER, READER, STRANGER = "admin", "pipeline", "rita", "eve", "mallory"
TEAMS = {
    "vision": {"writers": [TRAINER], "readers": [READER], "reviewers": ["somebody", REVIEWER]},
    "speech": {"writers": [STRANGER, "system:serviceaccount:speech:understudy-pipeline"]},
    "robots": {
        "writers": ["system:serviceaccount:robots:understudy-pipeline"],
        "readers": ["group:robot-people"],
        "reviewers": ["group:robot-leads"],
    },
    "notebooks": {"writers": [READER]},
}


PROMOTION_KEY, PUBLIC_KEY = key_pair()
SETTINGS = {
    "MLFLOW_AUTH_ADMIN_PASSWORD": f"password-of-{ADMIN}",
    "MLFLOW_FLASK_SERVER_SECRET_KEY": "any text",
    "UNDERSTUDY_ACCOUNTS": json.dumps({"teams": TEAMS}),
    "UNDERSTUDY_PROMOTION_KEY": PROMOTION_KEY,
}
APIS = ("api/2.0", "ajax-api/2.0")  # for programs, and for the pages
ALIAS = "registered-models/alias"


def ask(
    server: Server, account: str | None, method: str, endpoint: str, api: str = APIS[0], **body: Any
) -> tuple[int, Any]:
    """The status and the answer to an account, with the password that all of them have here, or to "Bearer TOKEN"."""
    request = Request(f"{server.uri}/{api}/mlflow/{endpoint}", method=method)
    request.add_header("Content-Type", "application/json")
    if account and account.startswith("Bearer "):
        request.add_header("Authorization", account)
    elif account:
        token = base64.b64encode(f"{account}:password-of-{account}".encode()).decode()
        request.add_header("Authorization", f"Basic {token}")
    try:
        with urlopen(request, json.dumps(body).encode() if body else None, timeout=30) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        with error:
            output = error.read().decode()
            return error.code, json.loads(output)["message"] if output.startswith("{") else output


def done(answer: tuple[int, Any]) -> Any:
    assert answer[0] == 200, answer
    return answer[1]


def make_accounts(server: Server, *accounts: str) -> None:
    """Give accounts their passwords, as an admin does."""
    for account in accounts:
        done(ask(server, ADMIN, "POST", "users/create", username=account, password=f"password-of-{account}"))


def standing(server: Server, name: str) -> dict[str, str]:
    result = done(ask(server, READER, "GET", f"registered-models/get?name={name}"))["registered_model"]
    return {alias["alias"]: alias["version"] for alias in result.get("aliases", ())}


def with_account(server: Server, account: str, password: str | None = None) -> str:
    return server.uri.replace("http://", f"http://{account}:{password or f'password-of-{account}'}@")
