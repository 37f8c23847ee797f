"""Start JupyterLab on a folder: on loopback, on a free port, with this interpreter's kernel."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import webbrowser
from dataclasses import dataclass
from pathlib import Path

from course_lib.errors import UserError

START_LIMIT_S = 90.0
# No question about news on the first start, and nothing fetched: the course works offline. Every
# cell stays in the page, so that widgets and pictures don't jump while one scrolls.
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    },
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}


@dataclass
class Server:
    """A running JupyterLab: its process, its address without and with the token."""

    process: subprocess.Popen
    port: int
    token: str

    def url(self, path: str = "lab") -> str:
        """Return the address of a page, token included."""
        return f"http://127.0.0.1:{self.port}/{path}?token={self.token}"


def port_is_free(port: int) -> bool:
    """Tell whether a server could listen on this port of the loopback interface."""
    with socket.socket() as probe:
        if os.name == "posix":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port(first: int = 8888) -> int:
    """Return the first free port from `first` on (100 are tried).

    Raises:
        UserError: if none of them is free.
    """
    for port in range(first, min(first + 100, 65536)):
        if port_is_free(port):
            return port
    raise UserError(f"No port from {first} to {first + 99} is free; name another with --port.")


def start(folder: Path, port: int, settings_folder: Path) -> Server:
    """Start JupyterLab on `folder` and return when it answers.

    Raises:
        UserError: if it ends or does not answer in time; the sentence carries its last words.
    """
    settings_folder.mkdir(parents=True, exist_ok=True)
    (settings_folder / "overrides.json").write_text(json.dumps(SETTINGS), "utf-8")
    server_log = settings_folder / "jupyterlab.log"
    token = secrets.token_hex(24)
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"),
        *("--ServerApp.port_retries=0", f"--ServerApp.root_dir={folder}"),
        *("--LabApp.extension_manager=readonly", f"--LabApp.app_settings_dir={settings_folder}"),
        *("--LabApp.expose_app_in_browser=True",),
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    with server_log.open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            command,
            env=_environment(token),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is ours: Jupyter would ask whether it is meant
        )
    server = Server(process, port, token)
    _wait_until_it_answers(server, server_log)
    return server


def _environment(token: str) -> dict[str, str]:
    """The token goes by the environment: a command line is there for every user to read."""
    return os.environ | {
        "JUPYTER_TOKEN": token,
        "JUPYTER_PREFER_ENV_PATH": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
    }


def _wait_until_it_answers(server: Server, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(server.url("api/status"), timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
        if server.process.poll() is not None:
            break
    stop(server)
    last_words = " / ".join(log.read_text("utf-8", errors="replace").strip().splitlines()[-3:])
    raise UserError(f"JupyterLab did not start on port {server.port}: {last_words}")


def stop(server: Server) -> None:
    """End the server; its kernels end with it."""
    if server.process.poll() is None:
        server.process.terminate()
        try:
            server.process.wait(15)
        except subprocess.TimeoutExpired:
            server.process.kill()
            server.process.wait()


def end_by_signal() -> None:
    """Make a closed terminal or a plain kill end this command like Ctrl-C, with its server."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), interrupt)


def can_open_browser() -> bool:
    """Tell whether a browser with a window is at hand (text browsers don't count)."""
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True
