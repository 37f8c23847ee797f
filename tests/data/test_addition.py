"""The addition homework: right sums, a fair and fixed split, and a score equal to real decoding."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.data.addition import (
    SYMBOLS,
    Addition,
    Problems,
    decode,
    encode,
    is_heldout,
    sum_of,
    write_rows,
)
from course_lib.errors import UserError


def all_problems(digits: int) -> Problems:
    a, b = np.indices((10**digits, 10**digits))
    return Problems(a.ravel(), b.ravel())


def read_numbers(row: str) -> tuple[int, int, int]:
    """Read a row with Python's own arithmetic only."""
    question, answer = row.split("=")
    a, b = question.split("+")
    return int(a), int(b), int(answer[::-1])


@given(st.integers(1, 6), st.data())
@settings(max_examples=60, deadline=None)
def test_a_row_states_a_true_sum_of_fixed_width(digits: int, data: st.DataObject) -> None:
    number = st.integers(0, 10**digits - 1)
    a, b = data.draw(number), data.draw(number)
    row = decode(write_rows(Problems(np.array([a]), np.array([b])), digits)[0])
    assert len(row) == 3 * digits + 3
    assert read_numbers(row) == (a, b, a + b)


def test_the_example_of_the_course() -> None:
    row = decode(write_rows(Problems(np.array([347]), np.array([586])), 3)[0])
    assert row == "347+586=3390"
    assert sum_of(row) == "0933"


def test_text_and_tokens_are_inverse() -> None:
    assert decode(encode(SYMBOLS)) == SYMBOLS
    assert len(SYMBOLS) == 13
    with pytest.raises(UserError, match="'-' is not part of an addition"):
        encode("12-7")


@pytest.mark.parametrize("digits", [1, 2, 3])
def test_the_split_treats_a_pair_in_both_orders_alike(digits: int) -> None:
    problems = all_problems(digits)
    heldout = is_heldout(problems).reshape(10**digits, 10**digits)
    assert (heldout == heldout.T).all()
    share = heldout.mean()
    assert 0.05 < share < 0.15 if digits < 3 else 0.098 < share < 0.102


def test_the_split_hides_no_class_of_sums() -> None:
    """What a split by a modulus does: some last digits, sums or carries are never trained."""
    problems = all_problems(3)
    heldout = is_heldout(problems)
    a, b = problems
    classes = {
        "last digit of a": a % 10,
        "last digit of b": b % 10,
        "last digit of the sum": (a + b) % 10,
        "first digit of the sum": (a + b) // 1000,
        "a modulo 7": a % 7,
        "carries": (a % 10 + b % 10 > 9) + 2 * (a % 100 + b % 100 > 99),
    }
    for name, values in classes.items():
        for value in np.unique(values):
            share = heldout[values == value].mean()
            assert 0.09 < share < 0.11, f"{name} {value}: {share:.3f} held out"
    by_modulus = (a + b) % 10 == 3  # the wrong answer that this test must catch
    assert by_modulus[(a + b) % 10 == 3].mean() == 1.0


@pytest.mark.parametrize("digits", range(1, 7))
def test_training_never_shows_a_heldout_problem(digits: int) -> None:
    data = Addition(digits, seed=3)
    numbers = []
    for step in range(5):
        batch = data.batch(step, 128)
        rows = torch.cat([batch.inputs, batch.targets[:, -1:]], dim=1)
        numbers += [read_numbers(decode(row)) for row in rows]
    a, b, total = (np.array(side) for side in zip(*numbers, strict=True))
    assert (a + b == total).all()
    assert not is_heldout(Problems(a, b)).any()
    assert not is_heldout(Problems(b, a)).any()


def test_a_batch_is_a_function_of_seed_and_step_alone() -> None:
    def inputs(seed: int, step: int) -> torch.Tensor:
        return Addition(3, seed).batch(step, 64).inputs

    data = Addition(3, seed=5)
    data.batch(0, 64)  # earlier batches, and global seeds, must not matter
    torch.manual_seed(1)
    np.random.seed(1)
    assert data.batch(7, 64).inputs.equal(inputs(5, 7))
    assert not inputs(5, 7).equal(inputs(5, 8))
    assert not inputs(5, 7).equal(inputs(6, 7))
    assert not inputs(5, 7).equal(inputs(7, 5))


def test_training_is_uniform_over_digits() -> None:
    data = Addition(2)
    inputs = torch.cat([data.batch(step, 1000).inputs for step in range(20)])
    counts = Counter(inputs[:, 0].tolist())
    assert set(counts) == set(range(10))
    assert all(1700 < count < 2300 for count in counts.values())


@pytest.mark.parametrize("digits", range(1, 7))
def test_enough_heldout_problems_and_none_twice(digits: int) -> None:
    problems = Addition(digits).heldout()
    assert is_heldout(problems).all()
    assert len(set(zip(*problems, strict=True))) == len(problems.a)
    if digits >= 3:
        assert len(problems.a) >= 2000
    else:  # every one that exists
        assert len(problems.a) == is_heldout(all_problems(digits)).sum()
    again = Addition(digits, seed=9).heldout()
    assert (again.a == problems.a).all()
    assert (again.b == problems.b).all()


def test_one_digit_keeps_both_splits_usable() -> None:
    heldout = is_heldout(all_problems(1))
    assert heldout.sum() == 9  # the docstring says so
    assert is_heldout(all_problems(2)).sum() == 979
    a, b = all_problems(1)
    assert set(a[~heldout]) == set(b[~heldout]) == set(range(10))
    assert set((a + b)[~heldout]) == set(range(19))


def test_the_mask_marks_the_answer() -> None:
    batch = Addition(3).batch(0, 4)
    assert batch.inputs.shape == batch.targets.shape == batch.mask.shape == (4, 11)
    for row in range(4):
        answer = decode(batch.targets[row][batch.mask[row]])
        assert answer == decode(batch.targets[row])[-4:]
        assert decode(batch.inputs[row])[:8].endswith("=")


def lookup_logits(table: dict[str, str]):
    """A causal stand-in for a model: its answer depends only on the question and what it wrote."""

    def logits(inputs: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(*inputs.shape, 13)
        for row in range(inputs.shape[0]):
            text = decode(inputs[row])
            wanted = table.get(text[:8], "0000")
            for place in range(7, 11):
                written = text[8 : place + 1]
                # A wrong first character derails the rest, as in a real model.
                guess = wanted[place - 7] if wanted.startswith(written) else "9"
                out[row, place, SYMBOLS.index(guess)] = 1.0
        return out

    return logits


def test_exact_match_equals_greedy_decoding() -> None:
    data = Addition(3)
    problems = Problems(*(side[:40] for side in data.heldout()))
    rows = [decode(row) for row in write_rows(problems, 3)]
    table = {}
    for index, row in enumerate(rows):
        answer = list(row[8:])
        if index % 5:  # spoil one character, another place each time
            place = index % 4
            answer[place] = str((int(answer[place]) + 1) % 10)
        table[row[:8]] = "".join(answer)
    model = lookup_logits(table)
    answers = data.answer(model, problems)
    decoded = np.mean([answer == row for answer, row in zip(answers, rows, strict=True)])
    assert data.exact_match(model, problems) == decoded == 8 / 40
    assert all(answer[:8] == row[:8] for answer, row in zip(answers, rows, strict=True))


def test_exact_match_counts_only_whole_answers() -> None:
    data = Addition(3)
    problems = Problems(np.array([1, 2]), np.array([3, 4]))
    all_zero = lookup_logits({})  # 4 and 6 are wrong in one of four characters
    assert data.exact_match(all_zero, problems) == 0.0
    assert data.exact_match(lookup_logits({"001+003=": "4000"}), problems) == 0.5


@pytest.mark.parametrize("digits", [0, 7, -1, 2.5])
def test_wrong_digits_are_refused(digits: int) -> None:
    with pytest.raises(UserError, match="from 1 to 6"):
        Addition(digits)
