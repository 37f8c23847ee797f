"""Every exercise: wrong answers are refused by name, right ones accepted, stubs told as blank."""

from collections import Counter

import pytest

from course_lib.teach.checking.checker import check_source, check_sources
from course_lib.teach.checking.exercise import Exercise
from course_lib.teach.checking.forbidden import resolve
from course_lib.teach.checking.mutants import mutants
from course_lib.teach.checking.result import CheckResult
from course_lib.teach.checking.source import blanks
from tests.exercises.suite import (
    EXERCISES,
    cells,
    explained_survivors,
    right_answers,
    wrong_answers,
)

every_exercise = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=list(EXERCISES))


def judged(exercise: Exercise, sources: list[str]) -> list[CheckResult]:
    """Judge answers that stand at the exercise's place in its chapter."""
    cell = cells()[exercise.id]
    return check_sources(exercise, [cell.answer(source) for source in sources])


def test_chapters_and_checks_name_the_same_exercises() -> None:
    with_checks = {id for id in cells() if id[:2] in {known[:2] for known in EXERCISES}}
    assert with_checks == set(EXERCISES)


@every_exercise
def test_an_exercise_is_complete(exercise: Exercise) -> None:
    wrong, right = wrong_answers(exercise), right_answers(exercise)
    assert len(wrong) >= 3, "at least three known wrong answers"
    assert len(right) >= 2, "at least two right answers besides the recorded solution"
    assert len({name for name, *_ in [*wrong, *right]}) == len(wrong) + len(right)
    assert len(exercise.hints) >= 2
    assert len(exercise.properties) >= 2
    for name in exercise.forbidden:
        resolve(name)


@every_exercise
def test_wrong_answers_are_refused_each_with_its_own_message(exercise: Exercise) -> None:
    wrong = wrong_answers(exercise)
    results = judged(exercise, [source for _, source, _ in wrong])
    for (name, _, fragment), result in zip(wrong, results, strict=True):
        assert result.status == "failed", f"{name!r} was accepted"
        assert fragment in repr(result), f"{name!r} was told:\n{result!r}"
        assert "Traceback" not in repr(result)
    messages = Counter(repr(result.failure) for result in results)
    assert max(messages.values()) == 1, [text for text, count in messages.items() if count > 1]


@every_exercise
def test_calling_what_should_be_built_is_one_of_the_wrong_answers(exercise: Exercise) -> None:
    if not exercise.forbidden:
        pytest.skip("nothing that a library could do for the learner")
    sources = [source for _, source, _ in wrong_answers(exercise)]
    kinds = [result.failure.kind for result in judged(exercise, sources) if result.failure]
    assert "forbidden" in kinds


@every_exercise
def test_right_answers_and_the_solution_pass(exercise: Exercise) -> None:
    named = [("the recorded solution", cells()[exercise.id].solution), *right_answers(exercise)]
    results = judged(exercise, [source for _, source in named])
    for (name, _), result in zip(named, results, strict=True):
        assert result.passed, f"{name!r} was refused:\n{result!r}"


@every_exercise
def test_the_stub_is_blank_and_the_solution_is_not(exercise: Exercise) -> None:
    blank, cell = blanks()[exercise.id], cells()[exercise.id]
    assert check_source(exercise, cell.answer(blank.stub)).status == "blank"
    commented = "# my first try\n" + blank.stub
    assert check_source(exercise, cell.answer(commented)).status == "blank"
    assert check_source(exercise, cell.answer(blank.solution)).status == "passed"


CHAPTERS = sorted({id[:2] for id in EXERCISES})
SAMPLED_ON_RANKS = 5


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_mechanical_mistakes_are_refused(chapter: str) -> None:
    """All mutants where one process judges them; on ranks, where each takes a second, a few."""
    exercises = [exercise for exercise in EXERCISES.values() if exercise.id[:2] == chapter]
    _assert_mutants_refused([e for e in exercises if not e.ranks])
    _assert_mutants_refused([e for e in exercises if e.ranks], SAMPLED_ON_RANKS)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_all_mechanical_mistakes_on_ranks_are_refused(
    chapter: str, request: pytest.FixtureRequest
) -> None:
    exercises = [e for e in EXERCISES.values() if e.id[:2] == chapter and e.ranks]
    if not exercises or "slow" not in request.config.getoption("markexpr"):
        pytest.skip("many minutes: run it with `-m slow`; the quick test takes a sample")
    _assert_mutants_refused(exercises)


def _assert_mutants_refused(exercises: list[Exercise], sample: int | None = None) -> None:
    """Of all mutants of all solutions at least 90 % are refused; every survivor is explained."""
    total, accepted = 0, {}
    for exercise in exercises:
        made = mutants(cells()[exercise.id].solution)
        made = made[:: max(1, len(made) // sample)] if sample else made
        results = judged(exercise, [mutant.source for mutant in made])
        total += len(made)
        for mutant, result in zip(made, results, strict=True):
            if result.passed:
                accepted[exercise.id, mutant.label] = mutant.source
    print(f"{total} mutants, {len(accepted)} accepted: {sorted(accepted)}")
    explained = {(e.id, label) for e in exercises for label in explained_survivors(e)}
    assert set(accepted) <= explained, "\n\n".join(accepted.values())
    if sample is None:
        assert set(accepted) == explained, "an explained survivor is refused by now: strike it"
        assert len(accepted) <= 0.1 * total
