"""Blanks: what learners get, what the solved notebook shows, and marks that don't pair up."""

import pytest

from course_lib.errors import UserError
from course_lib.teach.blanks import (
    regions,
    restore_stubs,
    solved_source,
    stub_source,
    unmarked_solution,
)

CELL = '''\
def my_sum(values):
    """Add."""
    ### BEGIN SOLUTION
    ### STUB: # one loop
    ### STUB: total = ...
    total = 0
    for value in values:
        total += value
    ### END SOLUTION
    return total'''


def test_the_student_gets_the_stub_and_nothing_of_the_solution():
    stub = 'def my_sum(values):\n    """Add."""\n    # one loop\n    total = ...\n    return total'
    assert stub_source(CELL) == stub


def test_the_solved_cell_runs_and_shows_no_stub():
    namespace: dict = {}
    exec(solved_source(CELL), namespace)
    assert namespace["my_sum"]([1, 2, 3]) == 6
    assert "### STUB" not in solved_source(CELL)
    assert "###" not in unmarked_solution(CELL)


def test_without_stub_lines_the_blank_is_an_ellipsis():
    assert stub_source("### BEGIN SOLUTION\nmy_x = 3\n### END SOLUTION") == "..."


def test_two_solutions_in_one_cell_each_get_their_own_stub():
    cell = (
        "### BEGIN SOLUTION\n### STUB: my_a = ...\nmy_a = 1\n### END SOLUTION\nb = 2\n"
        "### BEGIN SOLUTION\n### STUB: my_c = ...\nmy_c = 3\n### END SOLUTION"
    )
    assert stub_source(cell) == "my_a = ...\nb = 2\nmy_c = ..."


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("### BEGIN SOLUTION\nx = 1", "has no"),
        ("x = 1\n### END SOLUTION", "without a"),
        ("### BEGIN SOLUTION\n### BEGIN SOLUTION\n### END SOLUTION", "second"),
        ("### STUB: x = ...\nx = 1", "outside"),
    ],
)
def test_marks_that_do_not_pair_up_are_named(source: str, words: str):
    with pytest.raises(UserError, match=words):
        regions(source)


def test_an_edited_solution_gets_its_stubs_back():
    edited = solved_source(CELL).replace("total += value", "total = total + value")
    restored = restore_stubs(edited, CELL)
    assert stub_source(restored) == stub_source(CELL)
    assert solved_source(restored) == edited


def test_a_solution_whose_marks_were_removed_is_refused():
    with pytest.raises(UserError, match="0 solutions and its chapter 1"):
        restore_stubs(unmarked_solution(CELL), CELL)
