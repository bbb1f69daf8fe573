"""A server of `di2pose serve` in a process of its own, and how to ask it."""

import http.client
import os
import re
import subprocess
import sys
from pathlib import Path
from types import TracebackType

BOUNDARY = "----di2pose-form"


def form(files: dict[str, bytes], fields: dict[str, bytes], filename: str = "a.jpg") -> bytes:
    """multipart/form-data."""
    parts = []
    for name, content in files.items():
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="{filename}"\r\n\r\n'
        parts.append(head.encode("utf-8", "replace") + content + b"\r\n")
    for name, content in fields.items():
        parts.append(
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + content + b"\r\n"
        )
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


class Server:
    """Started by `with`, ended by its end. `flags` are those of the command."""

    def __init__(self, *flags: str) -> None:
        self.flags = flags
        self.port = 0

    def __enter__(self) -> "Server":
        words = [sys.executable, "-m", "di2pose", "serve", "--port", "0", *self.flags]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(r"http://[^:]+:(\d+)/", line):
                self.port = int(found[1])
                return self
        raise RuntimeError("the server did not start")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(60)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def memory(self) -> int:
        """Bytes that the process has in memory (Linux)."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        """What the process has computed for (Linux)."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self, path: str, body: bytes, timeout_s: float = 300.0) -> tuple[int, bytes]:
        """Status and body of the answer to a form."""
        return self.ask_again(path, body, timeout_s)[:2]

    def ask_again(
        self, path: str, body: bytes, timeout_s: float = 300.0, client: str = "127.0.0.1"
    ) -> tuple[int, bytes, float | None]:
        """The same, and in how many seconds to come again, where the answer says so. `client`: the address that it
        comes from (on Linux any of 127.x.x.x): clients are told apart by it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s, source_address=(client, 0))
        try:
            connection.request("POST", path, body, {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"})
            answer = connection.getresponse()
            later = answer.getheader("Retry-After")
            return answer.status, answer.read(), None if later is None else float(later)
        finally:
            connection.close()
