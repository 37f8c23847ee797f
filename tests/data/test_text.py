"""Text as characters: inverse coding, a fair split, whole epochs, and one sentence for each bad
file."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.data.text import TextData, read_text
from course_lib.errors import UserError

# Every character another one, so that places can be told apart.
TEXT = "".join(chr(0x4E00 + i) for i in range(1000))


@given(st.text(alphabet=st.characters(codec="utf-8"), min_size=50, max_size=80))
@settings(max_examples=50, deadline=None)
def test_any_text_comes_back(text: str) -> None:
    data = TextData(text, context=4)
    assert data.decode(data.encode(text)) == text
    assert data.vocab_size == len(set(text))


def test_an_unknown_character_is_named() -> None:
    with pytest.raises(UserError, match="'x' is not in the text that was learned"):
        TextData("abc" * 30, context=4).encode("abxc")


def test_targets_are_the_next_characters() -> None:
    data = TextData(TEXT, context=16)
    batch = data.batch(step=3, batch_size=5)
    assert batch.inputs.shape == (5, 16)
    assert batch.mask.all()
    for row in range(5):
        inputs, targets = data.decode(batch.inputs[row]), data.decode(batch.targets[row])
        assert TEXT.index(inputs[0]) + 1 == TEXT.index(targets[0])
        assert inputs + targets[-1] in TEXT[:900]


def test_an_epoch_reads_each_window_once_and_differs_from_the_next() -> None:
    data = TextData(TEXT, context=16)
    windows = data.windows
    epochs = []
    for epoch in range(3):
        rows = [data.batch(epoch * windows + i, 1).inputs[0] for i in range(windows)]
        seen = torch.cat(rows).tolist()
        assert len(seen) == len(set(seen)), "a character twice in one epoch"
        assert len(seen) >= 900 - 2 * 16
        assert min(seen) >= 0
        assert max(seen) < 900
        epochs.append(seen)
    assert epochs[0] != epochs[1] != epochs[2]


@given(st.integers(1, 40), st.integers(0, 50))
@settings(max_examples=60, deadline=None)
def test_a_batch_is_a_function_of_seed_and_step_alone(batch_size: int, step: int) -> None:
    data = TextData(TEXT, context=16, seed=2)
    whole = data.batch(step, batch_size).inputs
    assert whole.equal(TextData(TEXT, context=16, seed=2).batch(step, batch_size).inputs)
    # The same stretch of reads, one row at a time.
    single = [data.batch(step * batch_size + row, 1).inputs for row in range(batch_size)]
    assert whole.equal(torch.cat(single))
    assert not whole.equal(TextData(TEXT, context=16, seed=3).batch(step, batch_size).inputs)


@pytest.mark.parametrize("length", [170, 171, 999, 1000, 1001, 1013])
def test_validation_scores_every_character_of_the_last_tenth_once(length: int) -> None:
    text = "".join(chr(0x4E00 + i) for i in range(length))
    data = TextData(text, context=16)
    scored = [
        target
        for batch in data.validation_batches(batch_size=2)
        for target in batch.targets[batch.mask].tolist()
    ]
    assert scored == list(range(length - length // 10 + 1, length))
    first = data.validation_batches()[0]
    assert first.inputs[0, 0] == length - length // 10


def test_training_never_reaches_into_the_last_tenth() -> None:
    for context in (1, 3, 16, 50, 99):
        data = TextData(TEXT, context=context)
        for step in range(3 * data.windows):
            assert data.batch(step, 1).targets.max() < 900


def test_the_shortest_text_still_works_and_one_less_is_refused() -> None:
    data = TextData("ab" * 85, context=16)
    assert data.batch(0, 4).inputs.shape == (4, 16)
    expected = "has 169 characters, but a context of 16 needs at least 170"
    with pytest.raises(UserError, match=expected):
        TextData(("ab" * 85)[:-1], context=16)


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("\ufeff一行\r\nzwei\n".encode())
    assert read_text(path) == "一行\r\nzwei\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "There is no file .*text.txt"),
        (b"", "has 0 characters"),
        (b"To be", "has 5 characters, but a context of 8 needs at least 90"),
        ("Grüße".encode("latin-1") * 99, "is not UTF-8 text: byte 2 is 0xfc"),
        (b"ok" * 100 + b"\xff\xfe", "byte 200 is 0xff"),
    ],
)
def test_a_bad_file_gets_one_sentence(tmp_path: Path, content: bytes | None, expected: str) -> None:
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=expected) as caught:
        TextData.from_file(path, context=8)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="can't be read"):
        read_text(tmp_path)
