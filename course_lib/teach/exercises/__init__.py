"""`check`, `hint` and `solution`, and how to write an exercise.

from course_lib.teach.exercises import check, hint, solution
"""

from course_lib.teach.exercises.learner import check, hint, solution

__all__ = ["check", "hint", "solution"]
