"""The house keeps its shape: layers, style, types, sizes, docstrings."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted((ROOT / "course_lib").rglob("*.py"))
MAX_MODULE_LINES = 300
MAX_FUNCTION_LINES = 60


def run_tool(*command: str) -> None:
    """Run a tool of this environment in the checkout; show what it printed if it fails."""
    result = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    lines = (result.stdout + result.stderr).splitlines()
    assert result.returncode == 0, "\n".join(line[:300] for line in lines[-60:])


def test_layers_import_only_downwards():
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    run_tool("-c", code)


def test_every_room_is_in_the_contracts():
    """A room that no contract names could import whatever it likes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    stacked, undrawn = project["tool"]["importlinter"]["contracts"]
    layers = [name.strip("() ") for line in stacked["layers"] for name in line.split("|")]
    rooms = {
        f"course_lib.{path.stem}"
        for path in (ROOT / "course_lib").iterdir()
        if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").is_file()
    }
    assert rooms <= set(layers)
    below_teach = set(layers[layers.index("course_lib.teach") + 1 :])
    plain = {"course_lib.errors", "course_lib.paths"}
    assert (rooms & below_teach) - plain <= set(undrawn["source_modules"])


def test_ruff_finds_nothing():
    run_tool("-m", "ruff", "check", "--no-cache", ".")


def test_everything_is_formatted():
    run_tool("-m", "ruff", "format", "--no-cache", "--check", ".")


def test_types_agree():
    run_tool("-m", "mypy")


def names(paths: list[Path]) -> list[str]:
    """Return the paths as the tests' names."""
    return [str(path.relative_to(ROOT)) for path in paths]


@pytest.mark.parametrize("path", MODULES, ids=names(MODULES))
def test_modules_and_functions_stay_short(path: Path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_MODULE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{node.name} has {length} lines"


def public_names_without_docstring(body: list[ast.stmt], prefix: str = "") -> list[str]:
    """Return the public functions, classes and methods of a body that have no docstring."""
    missing = []
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        if ast.get_docstring(node) is None:
            missing.append(prefix + node.name)
        if isinstance(node, ast.ClassDef):
            missing += public_names_without_docstring(node.body, f"{node.name}.")
    return missing


@pytest.mark.parametrize("path", MODULES, ids=names(MODULES))
def test_modules_and_public_names_have_docstrings(path: Path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if path.name != "__main__.py":
        assert ast.get_docstring(tree), "the module has no docstring"
    assert public_names_without_docstring(tree.body) == []


def test_the_sizes_are_measured():
    long_function = "def f():\n" + "    x = 1\n" * 60
    node = ast.parse(long_function).body[0]
    assert (node.end_lineno or 0) - node.lineno + 1 == 61
    assert public_names_without_docstring(
        ast.parse("class A:\n '''A.'''\n def b(self): ...").body
    ) == ["A.b"]
