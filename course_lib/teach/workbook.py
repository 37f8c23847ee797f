"""The learner's workbook: a folder of student notebooks kept up to date and never spoilt.

A notebook that the learner changed is theirs. When its chapter changes, the new version comes
beside it under another name, and a sentence says so. Whether it was changed is told by its cells'
sources against a record of what was delivered. Outputs and a run don't count as a change, but
before such a notebook is replaced it is put aside too.
"""

import hashlib
import json
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lib.errors import UserError
from course_lib.teach.chapters import Chapter
from course_lib.teach.student import notebook_text, student_edition

KEPT_FOLDER = ".course"
RECORD_NAME = "delivered.json"


def update_workbook(chapters: list[Chapter], folder: Path) -> list[str]:
    """Write each chapter's student edition into `folder`; return a sentence for each file touched.

    Raises:
        UserError: if the folder can't be made or written.
    """
    try:
        (folder / KEPT_FOLDER).mkdir(parents=True, exist_ok=True)
        record = _read_record(folder)
        sentences = []
        for chapter in chapters:
            sentences += _deliver(student_edition(chapter), chapter.name, folder, record)
        record_path = folder / KEPT_FOLDER / RECORD_NAME
        record_path.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", "utf-8")
    except OSError as error:
        raise UserError(
            f"The workbook's folder {str(folder)!r} can't be written ({error.strerror}); "
            "name another with --folder."
        ) from error
    return sentences


def _deliver(new: NotebookNode, name: str, folder: Path, record: dict[str, str]) -> list[str]:
    """Bring one notebook up to date, or put its new version beside the learner's own."""
    path = folder / f"{name}.ipynb"
    wanted = sources_digest(new)
    if not path.exists():
        path.write_text(notebook_text(new), "utf-8")
        record[path.name] = wanted
        return [f"{path.name} is new."]
    present = _digest_of_file(path)
    if present == wanted:
        record[path.name] = wanted
        return []
    if present is not None and present == record.get(path.name):
        _put_aside(path, folder)
        path.write_text(notebook_text(new), "utf-8")
        record[path.name] = wanted
        return [f"{path.name} was brought up to date; you had not changed it."]
    if record.get(path.name) == wanted:
        return []
    return _deliver_beside(new, path, wanted, record)


def _deliver_beside(
    new: NotebookNode, path: Path, wanted: str, record: dict[str, str]
) -> list[str]:
    beside = path.with_name(beside_name(path.name))
    number = 2
    while beside.exists() and _digest_of_file(beside) not in (wanted, record.get(beside.name)):
        beside = path.with_name(beside_name(path.name, number))
        number += 1
    beside.write_text(notebook_text(new), "utf-8")
    record[beside.name] = record[path.name] = wanted
    return [
        f"{path.name} has your changes and stays as it is; "
        f"the chapter's new version is {beside.name}."
    ]


def beside_name(name: str, number: int = 1) -> str:
    """Return the new version's name: `00_step.ipynb` gives `00-new_step.ipynb`."""
    return f"{name[:2]}-new{'' if number == 1 else number}{name[2:]}"


def _put_aside(path: Path, folder: Path) -> None:
    """Keep the replaced notebook, outputs and all: a run may have taken the learner long."""
    path.replace(folder / KEPT_FOLDER / f"replaced_{path.name}")


def sources_digest(notebook: NotebookNode) -> str:
    """Return a digest of what a learner edits: the cells' kinds and sources, in order."""
    cells = [[cell.cell_type, cell.source.rstrip()] for cell in notebook.cells]
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()


def _digest_of_file(path: Path) -> str | None:
    """Return the digest of a notebook file, or None when it can't be read (then it is theirs)."""
    try:
        return sources_digest(nbformat.read(path, as_version=4))
    except Exception:  # any file that is no notebook: never ours to overwrite
        return None


def _read_record(folder: Path) -> dict[str, str]:
    """Return {file name: digest as delivered}; a lost record makes every notebook the learner's."""
    try:
        record = json.loads((folder / KEPT_FOLDER / RECORD_NAME).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
