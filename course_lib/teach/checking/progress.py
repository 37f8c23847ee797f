"""What a learner has done: attempts, passes and hints, by exercise.

It is kept in this process and, where the folder is a learner's workbook, in a small file there:
`.course_progress.json`, which `course lab` creates. Where no such file is, none is written, so that
an automatic run of the notebooks leaves nothing behind.
"""

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

FILE_NAME = ".course_progress.json"
_VERSION = 1
_FOLDERS_UP = 3
_LOCK_WAIT_S = 2.0


@dataclass(frozen=True)
class Progress:
    """One exercise's record: answers checked, passed at least once, hints shown."""

    attempts: int = 0
    passed: bool = False
    hints: int = 0


_here: dict[str, Progress] = {}


def start(folder: Path) -> None:
    """Begin to keep progress in `folder`; leaves a file that exists as it is."""
    if not (folder / FILE_NAME).exists():
        _write(folder / FILE_NAME, {})


def file_in_use(folder: Path | None = None) -> Path | None:
    """Return the progress file of `folder` (the current one) or of a folder above it, or None."""
    start_at = (folder or Path.cwd()).resolve()
    for candidate in [start_at, *start_at.parents][: _FOLDERS_UP + 1]:
        if (candidate / FILE_NAME).is_file():
            return candidate / FILE_NAME
    return None


def of(exercise_id: str) -> Progress:
    """Return what is known of one exercise, from this process and the file together."""
    file = file_in_use()
    recorded = read(file).get(exercise_id, Progress()) if file else Progress()
    here = _here.get(exercise_id, Progress())
    return Progress(
        max(recorded.attempts, here.attempts),
        recorded.passed or here.passed,
        max(recorded.hints, here.hints),
    )


def attempted(exercise_id: str, passed: bool, folder: Path | None = None) -> None:
    """Note a checked answer that was not blank."""
    _change(
        exercise_id,
        lambda old: Progress(old.attempts + 1, old.passed or passed, old.hints),
        folder,
    )


def hinted(exercise_id: str, total: int) -> int:
    """Note one more hint shown; return how many are shown by now, at most `total`."""
    shown = min(of(exercise_id).hints + 1, total)
    _change(exercise_id, lambda old: Progress(old.attempts, old.passed, shown), None)
    return shown


def read(file: Path) -> dict[str, Progress]:
    """Return the records of a progress file; {} for one that can't be read."""
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))["exercises"]
        return {
            str(id): Progress(int(row["attempts"]), bool(row["passed"]), int(row["hints"]))
            for id, row in rows.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def forget() -> None:
    """Forget what this process noted (for tests)."""
    _here.clear()


def _change(exercise_id: str, change: Callable[[Progress], Progress], folder: Path | None) -> None:
    _here[exercise_id] = change(_here.get(exercise_id, Progress()))
    file = file_in_use(folder)
    if file is None:
        return
    # A read-only folder must not make a check fail: the record of this process remains.
    with contextlib.suppress(OSError), _locked(file):
        records = read(file)
        records[exercise_id] = change(records.get(exercise_id, Progress()))
        _write(file, records)


def _write(file: Path, records: dict[str, Progress]) -> None:
    """Write beside the file, then put it in place: a reader never sees half of it."""
    rows = {id: asdict(records[id]) for id in sorted(records)}
    text = json.dumps({"version": _VERSION, "exercises": rows}, indent=1) + "\n"
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=FILE_NAME)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(name, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold the file's lock, so that two notebooks don't lose each other's records."""
    lock = file.with_name(FILE_NAME + ".lock")
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            if time.monotonic() > deadline:  # its holder died
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(lock)
            time.sleep(0.01)
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(lock)
