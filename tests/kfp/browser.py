"""A browser without a window: opens pages of KFP, clicks, reads them and takes pictures."""

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import websocket

from tests.kfp.server import wait

SIZE = (1500, 1000)
ADDRESS = "webSocketDebuggerUrl"


class Page:
    """A tab, driven over the Chrome DevTools protocol."""

    def __init__(self, socket: websocket.WebSocket) -> None:
        self._socket = socket
        self._sent = 0
        width, height = SIZE
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def open(self, address: str) -> None:
        """Go to an address; one that differs only after the # is loaded anew, too."""
        self._call("Page.navigate", url="about:blank")
        self._call("Page.navigate", url=address)

    def read(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    @property
    def text(self) -> str:
        """The text of the page."""
        return str(self.read("document.body.innerText"))

    def press(self, selector: str, text: str = "") -> None:
        """Press the first element that a selector finds, once it is there; of those with a text, where one is given."""
        elements = f"[...document.querySelectorAll({json.dumps(selector)})]"
        element = f"{elements}.find(one => !{json.dumps(text)} || one.innerText.trim() === {json.dumps(text)})"
        wait(lambda: self.read(f"Boolean({element})"), 30)
        self.read(f"{element}.dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")

    def picture(self, path: Path) -> None:
        """Save what can be seen, once it has come to rest."""
        time.sleep(2)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._sent += 1
        self._socket.send(json.dumps({"id": self._sent, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == self._sent:
                assert "error" not in answer, answer
                return dict(answer["result"])


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Chromium with an empty profile in a folder."""
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--user-data-dir={folder}", "--remote-debugging-port=0"]
    with subprocess.Popen([*command, "about:blank"], stderr=subprocess.DEVNULL) as process:
        try:
            port = wait(lambda: (folder / "DevToolsActivePort").exists() and _port(folder), 60)
            with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=30) as answer:
                [tab] = [target for target in json.load(answer) if target["type"] == "page"]
            with closing(websocket.create_connection(tab[ADDRESS], timeout=60, suppress_origin=True)) as socket:
                yield Page(socket)
        finally:
            process.terminate()


def _port(folder: Path) -> str:
    return (folder / "DevToolsActivePort").read_text().split("\n", 1)[0]
