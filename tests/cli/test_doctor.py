"""`course doctor`: one finding for each thing looked at, with the mend where something is ill."""

import importlib.metadata
import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from course_lib.cli import _health

MAIN = [sys.executable, "-c", "from course_lib.cli import main; main()"]


@pytest.mark.slow
def test_a_ready_machine_says_so_in_one_line_of_json():
    result = subprocess.run(
        [*MAIN, "doctor", "--json"], capture_output=True, text=True, timeout=100
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("\n") == 1
    report = json.loads(result.stdout)
    names = [finding["name"] for finding in report["findings"]]
    assert report["ready"] is True
    assert len(names) == len(set(names)) == len(_health.LOOKS)
    assert names[-1] == "four ranks"
    assert "all_reduce is right" in report["findings"][-1]["value"]


def test_a_torch_out_of_range_or_missing_is_ill(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_health, "version", lambda name: "2.1.0+cu121")
    finding = _health.torch()
    assert (finding.state, finding.value) == ("ill", "2.1.0+cu121")
    assert "pip install torch" in finding.mend

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(_health, "version", missing)
    assert _health.torch().value == "not installed"


def test_an_old_python_is_ill(monkeypatch: pytest.MonkeyPatch):
    old = SimpleNamespace(version_info=(3, 10, 0), executable="python3")
    monkeypatch.setattr(_health, "sys", old)
    assert _health.python().state == "ill"


def test_a_tiny_shared_memory_is_a_remark_with_its_mend(monkeypatch: pytest.MonkeyPatch):
    usage = SimpleNamespace(total=16 * 2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    finding = _health.shared_memory()
    if finding.value.startswith("none"):
        pytest.skip("this system has no /dev/shm")
    assert finding.state == "warning"
    assert "--shm-size" in finding.mend


def test_ranks_that_cannot_start_or_sum_wrongly_are_ill(monkeypatch: pytest.MonkeyPatch):
    import course_lib.ranks

    monkeypatch.setattr(course_lib.ranks, "launch", lambda *a, **k: [6.0, 6.0, 6.0, 5.0])
    assert _health.four_ranks().state == "ill"

    def broken(*arguments: object, **settings: object) -> list:
        raise RuntimeError("no\nranks")

    monkeypatch.setattr(course_lib.ranks, "launch", broken)
    finding = _health.safely(_health.four_ranks)
    assert (finding.state, finding.value) == ("ill", "RuntimeError: no ranks")
