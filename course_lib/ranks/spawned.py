"""The entry of a rank in a fresh interpreter (macOS, Windows).

Its standard input stays open as long as the parent lives; when it closes, the rank ends.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

from course_lib.ranks import worker


def main(descriptor: int) -> int:
    """Serve jobs on the channel whose descriptor (on Windows: whose share) the parent gave."""
    if sys.platform == "win32":
        channel = socket.fromshare(os.read(0, 4096))
    else:
        channel = socket.socket(fileno=descriptor)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    return worker.main(channel.detach(), os.dup(1))


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    code = main(int(sys.argv[1]))
    sys.stdout.flush()
    os._exit(code)
