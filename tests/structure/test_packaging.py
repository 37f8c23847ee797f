"""What a stranger installs: metadata, pins, and a wheel that carries the chapters."""

import re
import subprocess
import tomllib
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins() -> dict[str, str]:
    """Return {name: version} of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = {}
    for line in lines:
        match = re.fullmatch(r"([A-Za-z0-9_.-]+)==([^\s+]+)", line)
        assert match, f"{line!r} is not one exact pin"
        found[canonicalize_name(match[1])] = match[2]
    return found


def test_every_dependency_but_torch_is_pinned_in_its_range():
    wanted = list(PROJECT["dependencies"])
    for extra in PROJECT["optional-dependencies"].values():
        wanted += extra
    pinned = pins()
    assert "torch" not in pinned
    for text in wanted:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if name not in ("torch", "course-lib"):
            assert name in pinned, f"{text} has no pin"
            assert pinned[name] in requirement.specifier


def test_what_is_installed_is_what_is_pinned():
    """A package that slipped in unpinned would be another one on the next machine."""
    pinned = pins()
    brought_by_torch = {"torch", "course-lib", "pip", "setuptools", "wheel", "triton"}
    for found in distributions():
        name = canonicalize_name(found.metadata["Name"])
        if name in brought_by_torch or name.startswith(("nvidia-", "cuda-")):
            continue
        if name in pinned:
            assert found.version == pinned[name], f"{name} is {found.version}"


def test_torch_is_a_range():
    torch = next(Requirement(t) for t in PROJECT["dependencies"] if t.startswith("torch"))
    assert "2.13.0" in torch.specifier
    assert "2.8.0" in torch.specifier
    assert "3.0" not in torch.specifier


def tracked_texts() -> list[tuple[str, str]]:
    """Return (path, text) of every tracked file that is text."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = []
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.is_file():
            try:
                found.append((name, path.read_text(encoding="utf-8")))
            except UnicodeDecodeError:
                continue
    return found


def test_no_file_names_a_folder_of_one_machine():
    place = re.compile(r"(?<![\w.:/-])/(?:work|root|home/\w+)/\w+")
    allowed = {"tests/teach/test_lint.py"}
    found = [(name, m[0]) for name, text in tracked_texts() for m in place.finditer(text)]
    assert [hit for hit in found if hit[0] not in allowed] == []
    assert place.search("open('/" + "root/x/y')")


def test_nothing_is_marked_to_be_done():
    mark = re.compile(r"\b(?:TO" + "DO|FIX" + "ME|X" + r"XX)\b")
    assert [name for name, text in tracked_texts() if mark.search(text)] == []
