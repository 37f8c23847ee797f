"""What every check shares: an exercise's description, the process it runs in, the result it shows.

`course_lib.teach.exercises` says how to write an exercise with it.
"""

from course_lib.teach.checking.exercise import Exercise, Property
from course_lib.teach.checking.expect import (
    Wrong,
    describe,
    expect,
    expect_close,
    expect_equal,
    expect_unchanged,
    fail,
    is_close,
)
from course_lib.teach.checking.result import CheckResult

__all__ = [
    "CheckResult",
    "Exercise",
    "Property",
    "Wrong",
    "describe",
    "expect",
    "expect_close",
    "expect_equal",
    "expect_unchanged",
    "fail",
    "is_close",
]
