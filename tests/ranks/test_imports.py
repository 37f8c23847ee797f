"""What a rank loads: nothing of the course but what the ranks need."""

import subprocess
import sys

from course_lib.ranks import launch


def test_a_bare_import_loads_neither_torch_nor_anything_that_draws() -> None:
    code = (
        "import sys, course_lib, course_lib.ranks\n"
        "print([name for name in ('torch', 'numpy', 'matplotlib', 'ipywidgets', 'IPython')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_rank_holds_only_ranks_trace_and_what_they_stand_on() -> None:
    def loaded() -> list[str]:
        return sorted(name for name in sys.modules if name.startswith("course_lib."))

    (names,) = launch(loaded, world_size=1)
    allowed = ("course_lib.ranks", "course_lib.trace", "course_lib.config", "course_lib.errors")
    assert [name for name in names if not name.startswith(allowed)] == []


def test_the_names_that_notebooks_use_most_are_at_the_top() -> None:
    import course_lib

    assert course_lib.launch is launch
