"""The files of the tests' volume, as a pod that mounts it sees them."""

import secrets
import shlex
import subprocess
from threading import Timer

SECONDS = 60.0  # for one command


class Volume:
    """The claim's files, through one shell in a pod: an exec for each command takes more processor than the command."""

    def __init__(self, namespace: str, pod: str) -> None:
        self._namespace, self._pod = namespace, pod
        self._shell: subprocess.Popen[str] | None = None

    def cat(self, path: str) -> str:
        """A file below the home; nothing when it is not there."""
        return self.sh(f"cat /var/lib/understudy/home/{path} 2>/dev/null || true")

    def sh(self, command: str) -> str:
        """The output of a command there; empty when the pod cannot be reached."""
        mark = secrets.token_hex(8)
        shell = self._opened()
        watch = Timer(SECONDS, shell.kill)
        watch.start()
        try:
            return self._answer(shell, f"sh -c {shlex.quote(command)} </dev/null; printf '\\n%s\\n' {mark}\n", mark)
        except OSError:
            self.close()
            return ""
        finally:
            watch.cancel()

    def _opened(self) -> subprocess.Popen[str]:
        if self._shell is None or self._shell.poll() is not None:
            command = ["kubectl", "-n", self._namespace, "exec", "-i", self._pod, "--", "sh"]
            pipe = subprocess.PIPE
            self._shell = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        return self._shell

    def _answer(self, shell: subprocess.Popen[str], command: str, mark: str) -> str:
        """The lines before the mark.

        Raises:
            OSError: the shell has ended.
        """
        assert shell.stdin
        assert shell.stdout
        shell.stdin.write(command)
        shell.stdin.flush()
        lines: list[str] = []
        for line in shell.stdout:
            if line == f"{mark}\n":
                return "".join(lines).removesuffix("\n")
            lines.append(line)
        raise BrokenPipeError

    def close(self) -> None:
        """End the shell."""
        if shell := self._shell:
            self._shell = None
            shell.kill()
            shell.communicate()
