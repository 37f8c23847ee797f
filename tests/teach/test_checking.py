"""`check` itself: what it runs, what it sees, what it says, and that nothing brings it down."""

import functools
import linecache
import textwrap
import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from course_lib.teach.checking import Exercise, Wrong, expect_close, expect_equal
from course_lib.teach.checking.checker import check_answer, check_source, check_sources
from course_lib.teach.checking.forbidden import ALL_REDUCE, AUTOGRAD, LAYER_NORM, resolve
from course_lib.teach.checking.judge import SourceAnswer, judge
from course_lib.teach.checking.log import Log
from course_lib.teach.checking.mutants import mutants
from course_lib.teach.checking.result import CheckResult
from course_lib.teach.exercises import check

NORM = Exercise(
    "97.1",
    "Layer norm",
    forbidden=(*LAYER_NORM, *AUTOGRAD, "course_lib.forward.layers.layer_norm"),
    time_limit_s=3.0,
    memory_limit_bytes=512 << 20,
)


@NORM.property("it equals torch's", cases={"one row": (1, 4), "two rows": (2, 6)})
def equals_torch(answer: Any, shape: tuple[int, int]) -> None:
    x = torch.randn(shape)
    by_fewer = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)
    expected = F.layer_norm(x, shape[-1:])  # the reference may call what the answer may not
    expect_close(answer(x.clone()), expected, mistakes=[(by_fewer, "divide by n, not n - 1")])


@NORM.property("a row of equal numbers gives zeros", likely="Add eps before the root.")
def constant_row(answer: Any) -> None:
    expect_close(answer(torch.ones(1, 4)), torch.zeros(1, 4))


SUM = Exercise("97.2", "Sum over ranks", forbidden=ALL_REDUCE, ranks=(1, 2, 3))


@SUM.property("every rank ends with the sum", cases={"1 element": 1, "5 elements": 5})
def sums(answer: Any, length: int) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((length,), 10.0**rank)
    answer(tensor)
    expect_close(tensor, torch.full((length,), float("1" * world_size)))


@SUM.property("two ranks can do it twice", ranks=(2,))
def twice(answer: Any) -> None:
    tensor = torch.ones(2)
    answer(tensor)
    answer(tensor)
    expect_close(tensor, torch.full((2,), 4.0))


COUNT = Exercise("97.3", "A number", kind="value")


@COUNT.property("it is 7")
def is_seven(value: Any) -> None:
    expect_equal(value, 7, mistakes=[(8, "one too many")])


GOOD = """
def my_norm(x):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-5)
"""
GATHER = """
def my_sum(tensor):
    parts = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    tensor.copy_(sum(parts))
"""


def cell(source: str, name: str = "my_norm", **names: Any) -> Any:
    """Return what a notebook's cell defines, as a kernel holds it."""
    file = f"<cell {hash(source)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace = {"__name__": "__main__", "torch": torch, "dist": dist, "F": F, **names}
    exec(compile(source, file, "exec"), namespace)
    return namespace[name]


def told(answer: Any, exercise: Exercise = NORM) -> str:
    """Return the text of a check that has to fail."""
    result = check_answer(exercise, answer)
    assert result.status == "failed"
    text = repr(result)
    assert "Traceback" not in text
    assert len(text.splitlines()) < 20
    return text


def test_a_right_answer_passes_with_a_line_for_each_property() -> None:
    result = check_answer(NORM, cell(GOOD))
    assert result.passed
    assert [mark for mark, _ in result.lines] == ["ok", "ok"]
    assert repr(result) == repr(check_answer(NORM, cell(GOOD)))


def test_a_known_mistake_is_named_with_expected_and_came() -> None:
    text = told(cell("def my_norm(x): return (x - x.mean(-1, keepdim=True)) / x.std(-1, True)"))
    assert "divide by n, not n - 1" in text
    for word in ("expected", "came", "one row"):
        assert word in text
    assert "not tried  a row of equal numbers" in text


def test_a_property_says_its_own_likely_mistake() -> None:
    text = told(cell(GOOD.replace(" + 1e-5", "")))
    assert "ok         it equals torch's" in text
    assert "Add eps before the root" in text


WAYS = {
    "by its module": "def my_norm(x): return F.layer_norm(x, x.shape[-1:])",
    "under another name": "from torch.nn.functional import layer_norm as ln\n"
    "def my_norm(x): return ln(x, x.shape[-1:])",
    "the builtin": "def my_norm(x): return torch.layer_norm(x, x.shape[-1:])",
    "the kernel": "def my_norm(x):\n"
    "    return torch.ops.aten.native_layer_norm(x, x.shape[-1:], None, None, 1e-5)[0]",
    "the module": "def my_norm(x): return torch.nn.LayerNorm(x.shape[-1])(x)",
    "found by name": "def my_norm(x):\n"
    "    return getattr(torch.nn.functional, 'layer' + '_norm')(x, x.shape[-1:])",
    "behind a helper": "def helper(x): return F.layer_norm(x, x.shape[-1:])\n"
    "def my_norm(x): return helper(x)",
    "with the refusal swallowed": "def my_norm(x):\n    try:\n        "
    "F.layer_norm(x, x.shape[-1:])\n    except:\n        pass\n"
    "    return F.layer_norm(x, x.shape[-1:])",
    "the course's own": "from course_lib.forward.layers import layer_norm as ours\n"
    "def my_norm(x): return ours(x, torch.ones(x.shape[-1]), torch.zeros(x.shape[-1]))[0]",
}


@pytest.mark.parametrize("source", WAYS.values(), ids=WAYS)
def test_the_library_is_recognised_however_it_is_called(source: str) -> None:
    text = told(cell(source))
    assert "a call of" in text
    assert "layer_norm" in text
    assert "of your cell" in text


def test_an_answer_that_is_the_library_is_recognised() -> None:
    assert "a call of torch.nn.functional.layer_norm" in told(F.layer_norm)
    partial = functools.partial(F.layer_norm, normalized_shape=(4,))
    assert "a call of torch.nn.functional.layer_norm" in told(partial)


def test_every_forbidden_family_names_things_that_exist() -> None:
    from course_lib.teach.checking import forbidden

    names = [
        name
        for family, value in vars(forbidden).items()
        if family.isupper() and isinstance(value, tuple)
        for name in value
    ]
    assert len(names) > 30
    for name in names:
        resolve(name)
    with pytest.raises(ValueError, match=r"torch\.nn\.functional\.layer_morn"):
        resolve("torch.nn.functional.layer_morn")


def test_what_raises_is_told_with_its_line() -> None:
    text = told(cell("def my_norm(x):\n    y = x + 1\n    return y @ y"))
    assert "RuntimeError" in text
    assert "line 3 of your cell: `return y @ y`" in text


def test_a_line_in_a_helper_of_another_cell_is_told() -> None:
    helper = cell("def helper(x):\n    return x[100]", "helper")
    text = told(cell("def my_norm(x):\n    return helper(x)", helper=helper))
    assert "IndexError" in text
    assert "line 2 of an earlier cell: `return x[100]`" in text


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("pass\n    while True: pass", "still running after 3 s"),
        ("torch.zeros(10**10)", "0.5 GiB of memory"),
        ("import os; os._exit(0)", "exit status 0"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("raise SystemExit(3)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("return None", "Nothing came back"),
        ("return x.tolist()", "a tensor of shape (1, 4)"),
        ("return x.double()", "dtype float32"),
        ("return x[:, :2]", "shape (1, 2)"),
        ("return x * float('nan')", "nan or inf"),
        ("return undefined_name", "name 'undefined_name' is not defined"),
        ("return my_norm(x)", "RecursionError"),
    ],
)
def test_bad_answers_are_told_in_a_sentence(body: str, message: str) -> None:
    assert message in told(cell(f"def my_norm(x):\n    {body}"))


def test_an_endless_answer_that_swallows_everything_is_ended() -> None:
    source = "def my_norm(x):\n    while True:\n        try:\n            while True: pass\n"
    assert "still running" in told(cell(source + "        except BaseException: pass"))


def test_what_the_answer_printed_is_shown_only_when_it_fails() -> None:
    assert "looking at 4" in told(cell("def my_norm(x):\n    print('looking at', x.shape[-1])"))
    assert "looking" not in repr(check_answer(NORM, cell(GOOD + "    print('looking')\n")))
    assert len(told(cell("def my_norm(x):\n    print('x' * 10**6)"))) < 5000


def test_what_cannot_be_sent_is_named() -> None:
    lock = threading.Lock()
    text = told(cell("def my_norm(x):\n    with the_lock: return x", the_lock=lock))
    assert "the_lock" in text


def test_answers_of_another_kind_are_told() -> None:
    assert "a function" in told(3)
    assert "a function or class" in told(cell(GOOD), COUNT)
    assert "expected   7" in told("7", COUNT)
    assert "one too many" in told(8, COUNT)
    assert check_answer(COUNT, 7).passed


@pytest.mark.parametrize("blank", [..., [...], [..., ...], (...,)])
def test_dots_are_a_blank_value(blank: Any) -> None:
    assert check_answer(COUNT, blank).status == "blank"


@pytest.mark.parametrize(
    "source",
    [
        "def my_norm(x):\n    ...",
        'def my_norm(x):\n    """Text."""\n    # a comment\n    ...',
        "def my_norm(x):\n    pass",
        'def my_norm(x):\n    """Text."""',
    ],
)
def test_an_empty_function_is_blank(source: str) -> None:
    result = check_answer(NORM, cell(source))
    assert result.status == "blank"
    assert not result.passed
    assert "not attempted yet" in repr(result)
    assert check_source(NORM, SourceAnswer("", source, "my_norm")).status == "blank"


def test_a_recorded_stub_with_a_body_is_blank_until_it_changes() -> None:
    from course_lib.teach.checking.source import Blank, is_blank, is_blank_source

    stub = "def my_norm(x):\n    mean = ...\n    return x - mean"
    blank = Blank("my_norm", stub, GOOD)
    assert is_blank(cell(stub), blank)
    assert is_blank(cell(stub.replace("mean = ...", "mean = ...  # think")), blank)
    assert not is_blank(cell(stub.replace("...", "0")), blank)
    assert is_blank_source(stub, "my_norm", blank)
    assert not is_blank_source(GOOD, "my_norm", blank)
    in_place = "def my_norm(x):\n    return None"
    assert not is_blank(cell(in_place), blank)


def test_a_class_is_blank_by_its_stub() -> None:
    from course_lib.teach.checking.source import Blank, is_blank

    stub = "class My:\n    def step(self):\n        ...\n"
    blank = Blank("My", stub, "")
    assert is_blank(cell(stub, "My"), blank)
    assert not is_blank(cell(stub.replace("...", "return 1"), "My"), blank)


def test_an_unknown_exercise_is_a_result_that_names_those_there_are() -> None:
    result = check("00.99", 1)
    assert result.status == "unknown"
    assert "00.1" in repr(result)
    assert check(None, 1).status == "unknown"  # type: ignore[arg-type]


def test_a_mistake_of_the_check_itself_is_a_result() -> None:
    broken = Exercise("97.9", "Broken", forbidden=("torch.no_such_thing",))
    broken.property("never")(is_seven)
    assert check_answer(broken, cell(GOOD)).status == "failed"


def test_ranks_pass_at_every_world_size() -> None:
    assert check_answer(SUM, cell(GATHER, "my_sum")).passed


def test_a_wrong_rank_is_named() -> None:
    wrong = GATHER + "    if dist.get_rank() == 1: tensor += 1\n"
    assert "1 element, rank 1 of 2" in told(cell(wrong, "my_sum"), SUM)


def test_a_collective_that_should_be_built_is_refused() -> None:
    source = "def my_sum(tensor):\n    dist.all_reduce(tensor)"
    assert "a call of torch.distributed.all_reduce" in told(cell(source, "my_sum"), SUM)


HEAD = "def my_sum(tensor):\n    rank, size = dist.get_rank(), dist.get_world_size()\n"


@pytest.mark.parametrize(
    ("body", "messages"),
    [
        (
            "    if size > 1: dist.recv(tensor, (rank - 1) % size)",
            [
                "deadlock",
                "rank 0 waits in recv from rank 1 (float32[1]), line 3 of your cell",
                "rank 1 waits in recv",
            ],
        ),
        ("    if rank != 1:\n" + GATHER.split(":\n", 1)[1], ["1 element, rank 1 of 2", "came"]),
        (
            "    if rank == 1: raise ValueError('here')\n" + GATHER.split(":\n", 1)[1],
            ["ValueError: here", "rank 1 of 2"],
        ),
        (
            "    import os, signal\n    if rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
            + GATHER.split(":\n", 1)[1],
            ["SIGKILL", "rank 1 of 2"],
        ),
    ],
    ids=["everyone receives", "one stays away", "one raises", "one dies"],
)
def test_ranks_that_cannot_end_are_told(body: str, messages: list[str]) -> None:
    if "if rank != 1" in body:
        body = "    if rank == 1: return\n" + GATHER.split(":\n", 1)[1]
    text = told(cell(HEAD + body, "my_sum"), SUM)
    for message in messages:
        assert message in text


def test_many_texts_are_judged_in_one_process_even_past_one_that_dies() -> None:
    texts = [
        GOOD,
        "def my_norm(x):\n    import os; os._exit(1)",
        "def my_norm(x): return x",
        "def my_norm(x)\n",
        "def another(x): return x",
        "while True: pass",
        GOOD,
    ]
    answers = [SourceAnswer("import torch", text, "my_norm") for text in texts]
    results = check_sources(NORM, answers, time_limit_s=1.0)
    assert [result.passed for result in results] == [True, *[False] * 5, True]
    assert "SyntaxError" in repr(results[3])
    assert "does not define my_norm" in repr(results[4])


def test_the_html_form_has_words_and_escapes_what_it_shows() -> None:
    result = check_answer(NORM, cell("def my_norm(x):\n    print('<script>')\n    return x @ x"))
    html = result._repr_html_()
    assert "<script>" not in html
    assert "✗ wrong" in html
    assert "not tried" in html
    passed = CheckResult("97.1", "a < b", "passed", (("ok", "c < d"),))
    assert "a &lt; b: passed" in passed._repr_html_()
    assert "c &lt; d" in passed._repr_html_()


def test_wrong_carries_its_three_texts() -> None:
    wrong = Wrong("1", "2", "look")
    assert (wrong.expected, wrong.came, wrong.likely) == ("1", "2", "look")


def test_each_case_starts_with_the_same_random_numbers() -> None:
    """Of many answers judged in one process, each sees what it would see alone."""
    drawn = Exercise("97.8", "Draw")
    drawn.property("seeded by the rank", cases=[1, 2])(seeded)
    source = "def my_draw(): return torch.rand(3)"
    answers = [SourceAnswer("import torch", source, "my_draw")] * 3
    assert all(result.passed for result in check_sources(drawn, answers))


def seeded(answer: Any, _: int) -> None:
    got = answer()
    torch.manual_seed(0)
    expect_close(got, torch.rand(3))


def test_the_example_for_authors_works() -> None:
    from course_lib.teach import exercises

    guide = exercises.__doc__ or ""
    example = guide[guide.index('    """Exercises of chapter 02') : guide.index("and in `tests/")]
    namespace: dict[str, Any] = {"__name__": "guide"}
    exec(textwrap.dedent(example), namespace)
    stable = namespace["STABLE"]
    sources = {
        "def my_f(z):\n    z = z - z.amax(-1, True)\n"
        "    return z - z.exp().sum(-1, True).log()": "",
        "def my_f(z): return z - z.exp().sum(-1, True).log()": "Subtract the largest logit first",
        "def my_f(z): return (z.exp() / z.exp().sum(-1, True))": "take its logarithm",
        "def my_f(z): return z - z.exp().sum(-1).log()": "keepdim=True",
        "def my_f(z): return z.log_softmax(-1)": "a call of torch.Tensor.log_softmax",
    }
    for source, message in sources.items():
        log = Log()
        answer = SourceAnswer("import torch", source, "my_f").load()
        judge(stable, answer, log)
        text = " ".join(str(value) for value in (log.failure or {}).values())
        assert message in text
        assert (log.failure is None) == (message == "")


def test_mutants_change_one_thing_each_and_leave_texts_alone() -> None:
    source = (
        'import torch\ndef f(x: "a - b" = 0) -> 1:\n    """1 - 1"""\n'
        "    y = x[1:] - 2\n    if y.sum() < 3:\n        return -y\n    return y.sum(dim=0)"
    )
    made = mutants(source)
    labels = [mutant.label for mutant in made]
    assert "line 4: Sub became Add" in labels
    assert "line 4: `y = x[1:] - 2` dropped" in labels
    assert "line 5: Lt became LtE" in labels
    assert "line 6: sign or `not` dropped" in labels
    assert "line 7: argument dim dropped" in labels
    assert len({mutant.source for mutant in made}) == len(made)
    assert not any("3: " in label for label in labels if label.startswith("line 3"))
    for mutant in made:
        compile(mutant.source, "<mutant>", "exec")
