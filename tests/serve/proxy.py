"""A real nginx with the block of docs/serve.md."""

import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from di2pose.serve.command import bind

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
BLOCK = re.search(r"```nginx\n(.*?)```", (Path(__file__).parents[2] / "docs/serve.md").read_text("utf-8"), re.DOTALL)[1]
USER = "" if os.getuid() else "user root; "  # else root's nginx works as somebody who may not read the tests' folder
SETUP = USER + "daemon off; worker_processes 1; pid nginx.pid; events {} http { access_log off; "
TEMPORARY = "".join(f"{name}_temp_path {name}; " for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))


@contextmanager
def behind_nginx(folder, service_port, path="/"):
    """nginx before a service, under a path; yields its port. Connections wait in the socket until nginx has started."""
    if NGINX is None:
        pytest.skip("no nginx: apt-get install nginx-light")
    with bind("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        block = BLOCK
        for documented, here in (
            ("listen 443 ssl;", f"listen 127.0.0.1:{port};"),
            ("127.0.0.1:8000", f"127.0.0.1:{service_port}"),
            ("location / {", f"location {path} {{"),
        ):
            assert block.count(documented) == 1
            block = block.replace(documented, here)
        (folder / "nginx.conf").write_text(f"{SETUP}{TEMPORARY}{block}}}")
        nginx = subprocess.Popen(
            [NGINX, "-p", folder, "-e", "stderr", "-c", "nginx.conf"],
            env=os.environ | {"NGINX": f"{listening.fileno()};"},  # sockets that it takes over
            pass_fds=[listening.fileno()],
        )
    try:
        yield port
    finally:
        nginx.terminate()
        nginx.wait(20)
