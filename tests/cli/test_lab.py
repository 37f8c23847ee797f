"""`course lab`: a workbook, a server on loopback behind a token, and nothing left when it ends."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from course_lib.cli import _jupyter
from course_lib.errors import UserError
from course_lib.paths import CourseFolders

MAIN = [sys.executable, "-c", "from course_lib.cli import main; main()"]


def start_lab(course: CourseFolders, *arguments: str) -> subprocess.Popen:
    """Start `course lab` on the mini course without a display."""
    environment = os.environ | {"COURSE_HOME": str(course.root), "PYTHONUNBUFFERED": "1"}
    environment.pop("DISPLAY", None)
    return subprocess.Popen(
        [*MAIN, "lab", *arguments],
        env=environment,
        cwd=course.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def address_of(lab: subprocess.Popen) -> str:
    """Read what the command prints until it names the address."""
    assert lab.stdout is not None
    seen = []
    for line in lab.stdout:
        seen.append(line)
        match = re.search(r"http://127\.0\.0\.1:\d+/\S+", line)
        if match:
            return match[0]
    raise AssertionError("no address in: " + "".join(seen))


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_lab_serves_the_workbook_and_leaves_nothing(course: CourseFolders, how: signal.Signals):
    lab = start_lab(course, "--no-open")
    try:
        address = address_of(lab)
        children = psutil.Process(lab.pid).children(recursive=True)
        assert children
        base, token = address.split("/lab/tree/")[0], address.split("token=")[1]
        with urllib.request.urlopen(f"{base}/api/contents?token={token}", timeout=20) as answer:
            names = [entry["name"] for entry in json.load(answer)["content"]]
        assert "00_mini.ipynb" in names
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"{base}/api/contents", timeout=20)
        assert token not in " ".join(children[0].cmdline())
        listening = {c.laddr.ip for c in children[0].net_connections("tcp") if c.status == "LISTEN"}
        assert listening == {"127.0.0.1"}
        lab.send_signal(how)
        assert lab.wait(30) == 0
        assert not [child for child in children if child.is_running()]
    finally:
        lab.kill()
        lab.wait()


def test_only_update_makes_the_workbook_and_starts_nothing(course: CourseFolders, tmp_path: Path):
    book = tmp_path / "my book"
    lab = start_lab(course, "--only-update", "--folder", str(book))
    out, _ = lab.communicate(timeout=60)
    assert lab.returncode == 0
    assert out == f"00_mini.ipynb is new.\nYour workbook is in {book}.\n"
    assert (book / "00_mini.ipynb").is_file()


def test_a_taken_port_is_refused_or_passed_over(course: CourseFolders):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert not _jupyter.port_is_free(port)
        lab = start_lab(course, "--port", str(port))
        out, _ = lab.communicate(timeout=60)
        assert lab.returncode == 2
        assert f"Port {port} is taken" in out
        if port < 65000:
            assert _jupyter.free_port(port) > port


def test_a_server_that_cannot_start_says_why(tmp_path: Path):
    with pytest.raises(UserError, match="did not start"):
        _jupyter.start(tmp_path / "nowhere", _jupyter.free_port(), tmp_path / "settings")
