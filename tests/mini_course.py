"""A small course for the tests of the toolchain: one chapter that keeps every rule."""

from pathlib import Path

from course_lib.paths import CourseFolders, folders_of

HEAD = """\
# %% [markdown] id="00-title" slideshow={"slide_type": "slide"}
# # A mini chapter
#
# Does the pipeline keep what a chapter says, $\\lVert g \\rVert$ and 梯度 too?

# %% [markdown] id="00-title-notes" slideshow={"slide_type": "notes"}
# Two minutes. Say hello.

# %% [markdown] id="00-goals" slideshow={"slide_type": "subslide"}
# ## Goals
#
# - add two numbers

# %% id="00-setup" slideshow={"slide_type": "skip"}
from pathlib import Path

values = [10, 20, 30, 40]
print(sum(values))

# %% [markdown] id="00-idea" slideshow={"slide_type": "slide"}
# ## Averages
#
# $$\\bar g = \\frac{1}{P} \\sum_r g_r$$

# %% [markdown] id="00-predict" slideshow={"slide_type": "fragment"}
# <details><summary>What is the mean of 10, 20, 30 and 40?</summary>
#
# It is **25**.
#
# </details>

# %% id="00-mean" slideshow={"slide_type": "subslide"}
mean = sum(values) / len(values)
assert mean == 25
print(mean)
"""

EXERCISE = '''
# %% [markdown] id="00-spec{n}" slideshow={{"slide_type": "skip"}}
# **Exercise 00.{n}**: take a step.

# %% id="00-ex{n}" exercise="00.{n}" slideshow={{"slide_type": "skip"}}
def my_step_{n}(weight, gradient, rate):
    """Return the weight after one step."""
    ### BEGIN SOLUTION
    ### STUB: # rate times gradient, against the gradient
    ### STUB: new_weight = ...
    new_weight = weight - rate * gradient * {n}
    ### END SOLUTION
    return new_weight

# %% id="00-check{n}" slideshow={{"slide_type": "skip"}}
from mini_checks import check

check("00.{n}", my_step_{n})
'''

FILLER = """
# %% id="00-fill{n}" slideshow={{"slide_type": "skip"}}
assert {n} + 1 == {after}
"""

# Stands in for the course's own check: says "blank" where the stub returns its `...`.
MINI_CHECKS = """\
class Outcome:
    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


def check(exercise, answer):
    value = answer(1.0, 0.5, 0.1)
    return Outcome(f"{exercise}: {'not attempted yet' if value is ... else 'right'}")
"""


def chapter_text() -> str:
    """Return the text of the mini chapter."""
    exercises = "".join(EXERCISE.format(n=n) for n in (1, 2, 3))
    fillers = "".join(FILLER.format(n=n, after=n + 1) for n in range(20))
    return HEAD + exercises + fillers


def make_course(root: Path) -> CourseFolders:
    """Lay out a course of one chapter in `root` and return its folders."""
    folders = folders_of(root)
    for folder in (folders.chapters, folders.notebooks, folders.data, folders.blanks.parent):
        folder.mkdir(parents=True)
    (folders.chapters / "00_mini.py").write_text(chapter_text(), encoding="utf-8")
    (folders.notebooks / "mini_checks.py").write_text(MINI_CHECKS, encoding="utf-8")
    return folders
