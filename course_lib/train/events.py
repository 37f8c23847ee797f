"""What `fit` tells while it runs: plain dataclasses, from which bars, logs and curves are drawn.

Nothing here draws. The command line, a notebook and the metrics file all read the same events;
inside `launch` rank 0's events travel to the parent, so they hold plain numbers and strings only.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Event:
    """Something that happened in a run."""

    kind: ClassVar[str] = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the event as plain data, its kind under "event", for JSON."""
        return {"event": self.kind, **dataclasses.asdict(self)}


@dataclass(frozen=True)
class RunStarted(Event):
    """The model stands and the first step is next.

    step: steps done before, above 0 in a run that is resumed.
    steps: steps of the whole run.
    notes: sentences that the reader should see, such as why a resumed run can differ.
    """

    kind: ClassVar[str] = "start"
    task: str
    ranks: int
    parameters: int
    step: int
    steps: int
    device: str
    dtype: str
    threads_per_rank: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StepDone(Event):
    """One update is done.

    step: steps done so far, 1 after the first.
    loss: the mean over all that all ranks counted, in nats.
    grad_norm: the global norm before clipping.
    tokens_per_s: tokens read in this step, by all ranks, per second.
    """

    kind: ClassVar[str] = "step"
    step: int
    loss: float
    lr: float
    grad_norm: float
    tokens_per_s: float


@dataclass(frozen=True)
class Evaluated(Event):
    """The model was tried on what it has not learnt from; None where a score doesn't apply.

    exact_match: the share of held-out problems answered right in every character.
    validation_loss: the mean loss per character, in nats, over the last tenth of the text.
    """

    kind: ClassVar[str] = "evaluation"
    step: int
    exact_match: float | None
    heldout_problems: int | None
    validation_loss: float | None


@dataclass(frozen=True)
class CheckpointSaved(Event):
    """The run can be resumed from this step."""

    kind: ClassVar[str] = "checkpoint"
    step: int
    path: str


@dataclass(frozen=True)
class RunEnded(Event):
    """The run is over: its last step, a stop that was asked for, or an interrupt.

    step: steps done; steps: steps of the whole run.
    ended_by: "finished", "stop_after" or "interrupt".
    time_s: from the first step to here, evaluations included; of a resumed run, its own part.
    tokens_per_s: tokens read by all ranks, over the seconds spent in steps.
    parameters_sha256: of the parameters' bytes in the order of their names.
    samples: a few problems with the model's answers, or a text that it continued.
    """

    kind: ClassVar[str] = "end"
    task: str
    ranks: int
    step: int
    steps: int
    parameters: int
    ended_by: str
    exact_match: float | None
    heldout_problems: int | None
    validation_loss: float | None
    time_s: float
    tokens_per_s: float
    parameters_sha256: str
    samples: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        """Return the result as plain data: the line that --json prints."""
        return {
            "task": self.task,
            "ranks": self.ranks,
            "steps": self.step,
            "parameters": self.parameters,
            "exact_match": self.exact_match,
            "heldout_problems": self.heldout_problems,
            "validation_loss": self.validation_loss,
            "time_s": round(self.time_s, 3),
            "tokens_per_s": round(self.tokens_per_s, 1),
            "parameters_sha256": self.parameters_sha256,
            "ended_by": self.ended_by,
        }
