"""The tree of errors: whole, and with sentences that may go to clients."""

from __future__ import annotations

import inspect

from keylane import errors

ALL = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, Exception)]


def test_every_error_is_ours():
    assert all(issubclass(each, errors.KeylaneError) for each in ALL)


def drawn(kind: type[Exception], before: str = "") -> list[str]:
    """The lines of a class's tree below it, in the order in which the docstring has them."""
    lines = (errors.__doc__ or "").splitlines()
    names = [line.strip("│├└─ ") for line in lines]
    below = sorted(
        (each for each in ALL if each.__base__ is kind), key=lambda each: names.index(each.__name__)
    )
    found = []
    for each in below:
        is_last = each is below[-1]
        found.append(f"{before}{'└' if is_last else '├'}── {each.__name__}")
        found += drawn(each, f"{before}{' ' if is_last else '│'}   ")
    return found


def test_tree_in_the_docstring_is_that_of_the_classes():
    tree = "\n".join(f"    {line}" for line in ("KeylaneError", *drawn(errors.KeylaneError)))
    assert f"\n{tree}\n" in (errors.__doc__ or "")


def test_every_error_says_what_it_is():
    assert [each.__name__ for each in ALL if not each.__doc__] == []


def test_unavailable_tells_when_to_come_back():
    assert errors.StateUnavailable("away").retry_after_s == 1
    assert errors.LaneBuilding("t", 3, None).retry_after_s == 2


def test_lane_being_built_tells_its_progress():
    assert "has not begun" in str(errors.LaneBuilding("t", 3, None))
    assert "offset 77" in str(errors.LaneBuilding("t", 3, 77))
