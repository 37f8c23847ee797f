"""Where the course's folders are, in a checkout and in an installed package.

A checkout has `chapters/`, `notebooks/` and `data/` beside `course_lib/`. An installed wheel has
`chapters/` and `data/` inside the package, as `_chapters` and `_data`, and has no notebooks: those
are built from the chapters.
"""

import os
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class CourseFolders:
    """The folders and files that the pipeline reads and writes.

    `root` is the checkout, or None in an installed package, where nothing can be built in place.
    """

    chapters: Path
    notebooks: Path
    data: Path
    blanks: Path
    root: Path | None

    @property
    def student(self) -> Path:
        """Where `course build` leaves the student edition."""
        return self._built("student")

    @property
    def slides(self) -> Path:
        """Where `course slides` leaves the decks."""
        return (self.root or Path.cwd()) / "slides"

    def _built(self, name: str) -> Path:
        return (self.root or Path.cwd()) / "build" / name


def folders_of(root: Path) -> CourseFolders:
    """Return the folders of the checkout (or of any folder laid out like one) at `root`."""
    return CourseFolders(
        chapters=root / "chapters",
        notebooks=root / "notebooks",
        data=root / "data",
        blanks=root / "course_lib" / "teach" / "exercises" / "blanks.json",
        root=root,
    )


def repository() -> Path | None:
    """Return the checkout that this package runs from, or None when it is installed elsewhere."""
    root = PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() and (root / "chapters").is_dir() else None


def course_folders() -> CourseFolders:
    """Return the folders in use: of `COURSE_HOME`, else of the checkout, else of the package."""
    home = os.environ.get("COURSE_HOME")
    if home:
        return folders_of(Path(home).resolve())
    root = repository()
    if root is not None:
        return folders_of(root)
    return CourseFolders(
        chapters=PACKAGE / "_chapters",
        notebooks=Path.cwd() / "notebooks",
        data=PACKAGE / "_data",
        blanks=PACKAGE / "teach" / "exercises" / "blanks.json",
        root=None,
    )


def data_file(name: str) -> Path:
    """Return the path of a data file that is shipped with the course.

    Raises:
        ValueError: if there is no such file; the sentence lists the files that exist.
    """
    folder = course_folders().data
    path = folder / name
    if not path.is_file():
        known = sorted(
            p.name for p in folder.glob("*") if p.is_file() and not p.name.startswith(".")
        )
        raise ValueError(
            f"There is no data file {name!r}; the course ships {', '.join(known) or 'none'}."
        )
    return path
