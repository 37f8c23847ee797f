"""The environment that a rank's process is born with: libraries read theirs when they load."""

from __future__ import annotations

import importlib
import os

from course_lib.ranks.placement import RANK_ENVIRONMENT


def rank_environment() -> dict[str, str]:
    """Return the environment that a rank's process is born with (libraries read it at import)."""
    path = [_package_root(), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**RANK_ENVIRONMENT, **os.environ, "PYTHONPATH": os.pathsep.join(path)}


def _package_root() -> str:
    module = importlib.import_module("course_lib")
    return os.path.dirname(os.path.dirname(os.path.abspath(module.__file__ or ".")))
