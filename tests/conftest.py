"""What all tests share: passive waiting, and a course of one small chapter."""

import os
from pathlib import Path

import pytest

from course_lib.paths import CourseFolders
from tests.mini_course import make_course

# Before torch starts its threads: two test processes on two cores must not spin against each other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture
def course(tmp_path: Path) -> CourseFolders:
    """A course of one chapter, in a folder of its own."""
    return make_course(tmp_path / "course")
