"""Any UTF-8 text file, character by character: the first stage of the loop, on the learner's own
text.

The first nine tenths are for training, the last tenth for validation. B rows, T characters a row.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from course_lib.data.batch import Batch
from course_lib.data.sharding import epoch_items
from course_lib.errors import UserError


class TextData:
    """A text as tokens: one for each different character, in the order of their code points.

    Training goes through the text in windows of T characters, each once an epoch, in an order that
    the epoch decides; where the first window starts differs from epoch to epoch too, so that no
    character always stands at the same place of a window.

    Args:
        text: the whole text.
        context: T, characters that the model reads at once.
        seed: decides the training batches, not the split.
        name: what to call the text in an error.

    Raises:
        UserError: the text is too short for one window in its last tenth.
    """

    def __init__(self, text: str, context: int, seed: int = 0, name: str = "The text") -> None:
        needed = 10 * (context + 1)
        if len(text) < needed:
            raise UserError(
                f"{name} has {len(text)} characters, "
                f"but a context of {context} needs at least {needed} "
                f"(one window in the last tenth, which is for validation): "
                f"use a longer text or a smaller context."
            )
        self.characters = "".join(sorted(set(text)))
        self.vocab_size = len(self.characters)
        self.context = context
        self.seed = seed
        tokens = self.encode(text)
        split = len(tokens) - len(tokens) // 10
        self.training, self.validation = tokens[:split], tokens[split:]
        self.windows = (len(self.training) - context) // context

    @classmethod
    def from_file(cls, path: str | Path, context: int, seed: int = 0) -> TextData:
        """Read a UTF-8 file.

        Raises:
            UserError: there is no such file, it can't be read, it is not UTF-8, or it is too short.
        """
        return cls(read_text(path), context, seed, name=f"{path}")

    def encode(self, text: str) -> Int[Tensor, "N"]:
        """Return the tokens of a text.

        Raises:
            UserError: the first character that the learned text doesn't have.
        """
        points = np.array([ord(character) for character in text], dtype=np.int64)
        known = np.array([ord(character) for character in self.characters], dtype=np.int64)
        tokens = np.searchsorted(known, points).clip(max=len(known) - 1)
        strangers = np.flatnonzero(known[tokens] != points)
        if len(strangers):
            raise UserError(
                f"{text[strangers[0]]!r} is not in the text that was learned: "
                f"use its characters only, {self.characters!r}."
            )
        return torch.from_numpy(tokens)

    def decode(self, tokens: Int[Tensor, "N"]) -> str:
        """Return the text of some tokens, the inverse of encode."""
        return "".join(self.characters[token] for token in tokens.tolist())

    def batch(self, step: int, batch_size: int) -> Batch:
        """Return the global batch of one step, a function of (seed, step) alone."""
        epoch, window = epoch_items(self.windows, self.seed, step * batch_size, batch_size)
        spare = len(self.training) - self.context * self.windows  # places where window 0 may start
        phase = {e: self._phase(e, spare) for e in epoch.unique().tolist()}
        start = torch.tensor([phase[e] for e in epoch.tolist()]) + window * self.context
        return _windows(self.training, start, self.context)

    def validation_batches(self, batch_size: int = 64) -> list[Batch]:
        """Cut the last tenth into windows that don't overlap, each character after the first
        scored once.

        The last window is filled up, and its mask leaves the filling out.
        """
        count = len(self.validation) - 1
        starts = torch.arange(0, count, self.context)
        padded = torch.cat([self.validation, self.validation.new_zeros(self.context)])
        every = _windows(padded, starts, self.context)
        place = starts[:, None] + torch.arange(self.context)
        every = every._replace(mask=place < count)
        return [
            every.rows(slice(first, first + batch_size))
            for first in range(0, len(starts), batch_size)
        ]

    def _phase(self, epoch: int, spare: int) -> int:
        return int(np.random.default_rng([self.seed, epoch, 1]).integers(spare))


def read_text(path: str | Path) -> str:
    """Read a UTF-8 file as it is, line ends included.

    Raises:
        UserError: there is no such file, it is a folder, it can't be read, or a byte is not UTF-8.
    """
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text: byte {error.start} is 0x{error.object[error.start]:02x}; "
            f"save the file with the encoding UTF-8."
        ) from None
    except FileNotFoundError:
        raise UserError(f"There is no file {path}: check the name, or give another file.") from None
    except OSError as error:
        reason = (error.strerror or "it can't be opened").lower()
        raise UserError(f"{path} can't be read ({reason}): give a readable text file.") from None


def _windows(tokens: Int[Tensor, "N"], start: Int[Tensor, "B"], context: int) -> Batch:
    rows = tokens[start[:, None] + torch.arange(context + 1)]
    mask = torch.ones(len(start), context, dtype=torch.bool)
    return Batch(inputs=rows[:, :-1], targets=rows[:, 1:], mask=mask)
