"""How good is the model on what it has not learnt from? Each rank tries its share, all join.

Letters: B batch, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from course_lib.data.addition import Addition, Problems
from course_lib.data.text import TextData
from course_lib.loss import cross_entropy_sum
from course_lib.ranks import runtime
from course_lib.sync.data_parallel import GradientSync
from course_lib.train.step import device_of

SAMPLE_PROBLEMS = 5
SAMPLE_CHARACTERS = 300


class Score(NamedTuple):
    """The result of an evaluation, None where it doesn't apply; the same on every rank.

    exact_match: the share of held-out problems answered right in every character.
    heldout_problems: how many were tried.
    validation_loss: the mean loss per character of the last tenth of the text, in nats.
    """

    exact_match: float | None = None
    heldout_problems: int | None = None
    validation_loss: float | None = None


def evaluate(model: nn.Module, data: Addition | TextData, sync: GradientSync) -> Score:
    """Try the model without dropout; a collective call, since each rank tries every P-th row.

    The model is left in the mode (training or not) it was in.
    """
    with _evaluating(model):
        if isinstance(data, Addition):
            return _exact_match(model, data, sync)
        return _validation_loss(model, data, sync)


def _exact_match(model: nn.Module, data: Addition, sync: GradientSync) -> Score:
    problems = data.heldout()
    mine = Problems(*(side[runtime.rank() :: runtime.world_size()] for side in problems))
    right = data.exact_match(logits_on_device(model), mine) * len(mine.a) if len(mine.a) else 0.0
    return Score(sync.mean(round(right), len(mine.a)), len(problems.a))


def _validation_loss(model: nn.Module, data: TextData, sync: GradientSync) -> Score:
    total, counted = 0.0, 0
    batches = data.validation_batches()
    for batch in batches[runtime.rank() :: runtime.world_size()]:
        part = batch.to(device_of(model))
        loss = cross_entropy_sum(model(part.inputs), part.targets, part.mask)
        total, counted = total + loss.total.item(), counted + loss.counted
    return Score(validation_loss=sync.mean(total, counted))


def samples(model: nn.Module, data: Addition | TextData, seed: int = 0) -> tuple[str, ...]:
    """Let the model answer a few held-out problems, or continue the validation text.

    Args:
        model: not changed.
        data: what it was trained on.
        seed: decides which characters are drawn.

    Returns:
        Rows such as "347+586=3390", or one text of SAMPLE_CHARACTERS characters.
    """
    with _evaluating(model):
        if isinstance(data, Addition):
            few = Problems(*(side[:SAMPLE_PROBLEMS] for side in data.heldout()))
            return tuple(data.answer(logits_on_device(model), few))
        return (_continue_text(model, data, seed),)


def _continue_text(model: nn.Module, data: TextData, seed: int) -> str:
    generator = torch.Generator().manual_seed(seed)
    tokens = data.validation[: data.context].clone()
    logits_of = logits_on_device(model)
    for _ in range(SAMPLE_CHARACTERS):
        logits = logits_of(tokens[None, -data.context :])[0, -1].float().cpu()
        drawn = torch.multinomial(logits.softmax(-1), 1, generator=generator)
        tokens = torch.cat([tokens, drawn])
    return data.decode(tokens[data.context :])


def logits_on_device(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the model as a function of tokens that may lie on the CPU."""
    return lambda tokens: model(tokens.to(device_of(model)))


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)
