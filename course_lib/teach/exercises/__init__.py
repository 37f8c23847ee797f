'''`check`, `hint` and `solution` for learners; for authors, how to write an exercise.

    from course_lib.teach.exercises import check, hint, solution

An exercise has three homes. Its **text, stub and solution** stand in the chapter, in a cell whose
header says `exercise="02.1"`; `course build` records them. What a right answer does is said in the
module `chNN.py` of this package. Known **wrong and right answers** stand in
`tests/exercises/chNN.py`; the tests there need no change for a new exercise.

A complete example, `ch02.py`:

    """Exercises of chapter 02, the loss."""

    import torch

    from course_lib.teach.checking import Exercise, expect_close, expect_unchanged
    from course_lib.teach.checking.forbidden import LOG_SOFTMAX

    STABLE = Exercise(
        "02.1",
        "Logarithm of a softmax that never overflows",
        hints=("Subtract the largest logit first.", "log softmax = z - log(sum(exp(z)))."),
        forbidden=(*LOG_SOFTMAX, "course_lib.loss.log_softmax"),
    )

    @STABLE.property(
        "it equals log(softmax(logits))",
        cases={"one row": (1, 3), "a batch": (4, 13), "any dimensions": (2, 3, 5)},
        likely="Sum over the last dimension, and keep it: `keepdim=True`.",
    )
    def _equals_torch(answer, shape):
        logits = torch.randn(shape)
        mistakes = [
            (logits.softmax(-1), "That is the softmax: take its logarithm."),
            (logits.log_softmax(0), "You summed over the first dimension."),
        ]
        expect_close(answer(logits.clone()), logits.log_softmax(-1), mistakes=mistakes)

    @STABLE.property("large logits give no nan", likely="Subtract the largest logit first.")
    def _stable(answer):
        logits = torch.tensor([1000.0, 0.0])
        expect_close(answer(logits), torch.tensor([0.0, -1000.0]))

and in `tests/exercises/ch02.py`, at least three wrong answers, each with a part of its message,
one of which calls the library, and two right ones of different style:

    WRONG = {"02.1": [("calls torch", "def my_log_softmax(z): return z.log_softmax(-1)",
                       "a call of torch.Tensor.log_softmax"), ...]}
    RIGHT = {"02.1": [("in one line", "def my_log_softmax(z): ..."), ...]}
    SURVIVORS = {"02.1": {"line 3: 0 became -1": "why this mutant is a right answer"}}

Rules:

- A property is one sentence that is true of a right answer, and a function that raises `Wrong`,
  mostly through an `expect_...`. Order them so that the first to fail says most. Keep them small: a
  check should take 0.2 s. Each case starts with torch, random and NumPy seeded by the rank.
- Compare with something independent: torch's own, autograd, the whole batch on one process. The
  reference may call what is forbidden: only calls made by the learner's code count.
- `mistakes` are (what the mistaken computation gives, what to tell) pairs. Choose inputs on which
  no mistake is right by chance: no equal values, no square shapes, no counts that are equal.
- `likely` of a property is said when no mistake matches. Two mistakes never share a message.
- Give clones to the answer where you need the input again, and `expect_unchanged` where the answer
  must not write on it.
- `forbidden` names everything that would do the work, course_lib's own version included. Families
  of names stand in `checking.forbidden`. An exercise where no library can help leaves it empty.
- `kind="class"`: the answer is a class, the property makes an instance of it. `kind="value"`: a
  number or a list, judged in the kernel itself.
- `ranks=(1, 2, 3, 4)`: each property runs on that many real ranks, one world size after the other,
  torch.distributed initialised. The property is called on every rank and may fail on any of them;
  the ranks agree after each case. Give every rank data of its own, made from its rank; use lengths
  1, 5 and shorter than the number of ranks. A property with `ranks=(2, 3)` runs at those sizes
  only. A deadlock and a rank that dies are told without your help. Bytes and messages are counted
  by `course_lib.trace`.
- Everything a learner reads is a sentence with the way on, and the same on every run.
'''

from course_lib.teach.exercises.learner import check, hint, solution

__all__ = ["check", "hint", "solution"]
