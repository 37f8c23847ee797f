"""`course bench`: names that exist, options that fit, one line of JSON."""

import json
import sys
import types

import pytest

from course_lib.bench.result import BenchResult
from course_lib.cli import bench, main


@pytest.fixture
def course(monkeypatch, capsys):
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["course", "bench", *arguments])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def fake(monkeypatch):
    """A bench that measures nothing: what is shown of its result is tested here."""
    rows = [{"case": "small", "time_s": 0.51234567}]
    module = types.ModuleType("fake")
    module.run = lambda seeds=3: BenchResult("fake", 2.0, rows * seeds, ["A note."])
    monkeypatch.setattr(bench, "_load", lambda name: module)


@pytest.mark.parametrize("name", ["", "speed", "result", "_plain_text", "../text"])
def test_an_unknown_name_lists_the_valid_ones(course, name):
    code, out, err = course(name) if name else course()
    assert (code, out) == (2, "")
    assert f"There is no bench {name!r}: use one of " in err
    assert "text" in err.split("use one of ")[1]
    assert "result" not in err.split("use one of ")[1]


def test_every_bench_has_run_and_a_docstring():
    for name in bench.bench_names():
        module = bench._load(name)
        assert callable(module.run)
        assert module.__doc__


def test_json_is_one_line(course, fake):
    code, out, _ = course("fake", "--seeds", "2", "--json")
    assert code == 0
    assert out.count("\n") == 1
    result = json.loads(out)
    assert (result["name"], result["speedup"], len(result["rows"])) == ("fake", 2.0, 2)


def test_a_table_for_a_person(course, fake):
    code, out, _ = course("fake")
    assert code == 0
    assert "2.00 times as fast" in out
    assert "0.5123" in out
    assert "A note." in out


def test_an_option_without_use_is_refused(course, fake):
    code, _, err = course("fake", "--text", "some.txt")
    assert code == 2
    assert "no use for --text some.txt: it takes --seeds." in err


def test_text_needs_its_file(course, tmp_path):
    code, _, err = course("text")
    assert (code, err) == (2, "The bench text needs a file to learn: give one by --text FILE.\n")
    code, _, err = course("text", "--text", str(tmp_path / "none.txt"))
    assert code == 2
    assert "none.txt" in err
