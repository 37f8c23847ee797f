"""Additions as homework: problems, tokens, a fair split, and a score. The first stage of the loop.

A problem is a row of characters of fixed width: `347+586=3390` stands for 347 + 586 = 0933, the
sum's digits reversed, so that a carry is known before it is needed (Lee et al. 2023, "Teaching
Arithmetic to Small Transformers"). With D digits a row has 3 D + 3 characters, of which the last
D + 1 are the answer.

B rows, T tokens that the model reads (one fewer than a row has), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.config import MAX_DIGITS
from course_lib.data.batch import Batch
from course_lib.errors import UserError

SYMBOLS = "0123456789+=_"  # `_` is a blank: an answer's place that is not filled in yet
VOCAB_SIZE = len(SYMBOLS)
PLUS, EQUALS, BLANK = (SYMBOLS.index(symbol) for symbol in "+=_")
HELDOUT_SHARE = 0.1
MAX_SCORED = 4096

LogitsOf = Callable[[Tensor], Tensor]


class Problems(NamedTuple):
    """Pairs of numbers to add."""

    a: Int[np.ndarray, "B"]
    b: Int[np.ndarray, "B"]


def encode(text: str) -> Int[Tensor, "T"]:
    """Return the tokens of a text made of digits, `+`, `=` and `_`.

    Raises:
        UserError: the first character that is none of them.
    """
    for character in text:
        if character not in SYMBOLS:
            raise UserError(
                f"{character!r} is not part of an addition: use digits, '+', '=' or '_'."
            )
    return torch.tensor([SYMBOLS.index(character) for character in text], dtype=torch.int64)


def decode(tokens: Int[Tensor, "T"]) -> str:
    """Return the text of some tokens, the inverse of encode."""
    return "".join(SYMBOLS[token] for token in tokens.tolist())


def is_heldout(problems: Problems) -> Bool[np.ndarray, "B"]:
    """Tell which problems are kept from training: about one in ten, by a hash of the unordered
    pair.

    Unordered, or 586 + 347 in training would give away 347 + 586. A hash, since a rule such as
    "(a + b) mod 10 is 3" would keep a whole kind of sum from the training. The same for every seed.
    The hash is splitmix64's finaliser (Steele, Lea, Flood 2014).
    """
    low = np.minimum(problems.a, problems.b).astype(np.uint64)
    high = np.maximum(problems.a, problems.b).astype(np.uint64)
    x = low * np.uint64(10**MAX_DIGITS) + high + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    return x < np.uint64(int(HELDOUT_SHARE * 2**64))


def write_rows(problems: Problems, digits: int) -> Int[Tensor, "B R"]:
    """Write problems with their answers as rows of R = 3 D + 3 tokens, int64.

    Args:
        problems: numbers from 0 to 10^D - 1.
        digits: D. Numbers are filled up with zeros in front, the sum has D + 1 digits.
    """
    a, b = problems
    powers = 10 ** np.arange(digits + 1)  # 1, 10, 100, ...: the order of the reversed sum
    forward = powers[digits - 1 :: -1]
    rows = np.empty((len(a), 3 * digits + 3), dtype=np.int64)
    rows[:, :digits] = a[:, None] // forward % 10
    rows[:, digits] = PLUS
    rows[:, digits + 1 : 2 * digits + 1] = b[:, None] // forward % 10
    rows[:, 2 * digits + 1] = EQUALS
    rows[:, 2 * digits + 2 :] = (a + b)[:, None] // powers % 10
    return torch.from_numpy(rows)


class Addition:
    """The additions of D-digit numbers: endless training batches, and fixed held-out problems.

    With one digit there are only 100 problems: 91 to learn and 9 held out. Each is a row of a table
    that says nothing about the others, so a model learns the 91 by heart and fails most of the 9;
    from two digits on (9,021 and 979 problems) it has to find the rule. From three digits on 4,096
    held-out problems are scored.

    Args:
        digits: D, from 1 to 6.
        seed: decides the training batches, not the split.

    Raises:
        UserError: digits outside 1 to 6.
    """

    vocab_size = VOCAB_SIZE

    def __init__(self, digits: int = 3, seed: int = 0) -> None:
        if digits not in range(1, MAX_DIGITS + 1):
            raise UserError(f"digits is {digits}: use a whole number from 1 to {MAX_DIGITS}.")
        self.digits = digits
        self.seed = seed
        self.context = 3 * digits + 2

    def batch(self, step: int, batch_size: int) -> Batch:
        """Return the global batch of one step, a function of (seed, step) alone.

        Drawn uniformly from all training problems; held-out ones are drawn again.
        """
        rng = np.random.default_rng([self.seed, step])
        a, b = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        while len(a) < batch_size:
            drawn = Problems(*rng.integers(0, 10**self.digits, size=(2, batch_size + 8)))
            keep = ~is_heldout(drawn)
            a, b = np.append(a, drawn.a[keep]), np.append(b, drawn.b[keep])
        return self.to_batch(Problems(a[:batch_size], b[:batch_size]))

    def to_batch(self, problems: Problems) -> Batch:
        """Write problems as a batch whose loss counts the answer's characters only."""
        rows = write_rows(problems, self.digits)
        mask = torch.zeros(rows.shape[0], self.context, dtype=torch.bool)
        mask[:, -(self.digits + 1) :] = True
        return Batch(inputs=rows[:, :-1], targets=rows[:, 1:], mask=mask)

    def heldout(self, limit: int = MAX_SCORED) -> Problems:
        """Return held-out problems, always the same: all that there are, or at most `limit`."""
        if self.digits <= 2:
            a, b = (axis.ravel() for axis in np.indices((10**self.digits,) * 2))
        else:  # drawn, since there are up to 10^12; the stream is apart from every training batch
            rng = np.random.default_rng([0, 0, self.digits])
            a, b = rng.integers(0, 10**self.digits, size=(2, 15 * limit))
        keep = is_heldout(Problems(a, b))
        pairs = np.stack([a[keep], b[keep]])
        if self.digits > 2:
            pairs = _without_repeats(pairs)
        return Problems(*pairs[:, :limit])

    def exact_match(self, logits_of: LogitsOf, problems: Problems | None = None) -> float:
        """Return the share of problems whose whole answer the model gets right, by greedy decoding.

        One pass is enough: greedy decoding writes the right answer exactly when, given the right
            characters
        so far, the most likely next one is right at every place (by induction over the places).

        Args:
            logits_of: the model in eval mode, tokens [B, T] to logits [B, T, V].
            problems: which to try; by default the held-out ones.
        """
        problems = self.heldout() if problems is None else problems
        right = 0
        for first in range(0, len(problems.a), 1024):
            part = Problems(*(side[first : first + 1024] for side in problems))
            batch = self.to_batch(part)
            guessed = _guess(logits_of, batch.inputs)
            wrong = (guessed != batch.targets) & batch.mask
            right += int((~wrong.any(dim=1)).sum())
        return right / len(problems.a)

    def answer(self, logits_of: LogitsOf, problems: Problems) -> list[str]:
        """Let the model answer, one character after another, and return the written rows.

        The answer starts as blanks. Each pass fills in the most likely character at the next
        place; the blanks behind it can't matter to a causal model.
        """
        rows = write_rows(problems, self.digits)
        rows[:, 2 * self.digits + 2 :] = BLANK
        for place in range(2 * self.digits + 2, rows.shape[1]):
            rows[:, place] = _guess(logits_of, rows[:, :-1])[:, place - 1]
        return [decode(row) for row in rows]


def sum_of(row: str) -> str:
    """Read a row's answer in the everyday order: `347+586=3390` gives `0933`."""
    return row.partition("=")[2][::-1]


def _guess(logits_of: LogitsOf, inputs: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    with torch.no_grad():
        logits: Float[Tensor, "B T V"] = logits_of(inputs)
    return logits.argmax(dim=-1).cpu()


def _without_repeats(pairs: Int[np.ndarray, "two N"]) -> Int[np.ndarray, "two M"]:
    _, first = np.unique(pairs, axis=1, return_index=True)
    return pairs[:, np.sort(first)]
