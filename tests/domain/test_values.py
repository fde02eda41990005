"""`@frozen` is what `@dataclass(frozen=True, slots=True, kw_only=True)` is: the same statements hold for both."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import Any

import pytest

from shared.domain.values import frozen

both = pytest.mark.parametrize("decorate", [frozen, dataclass(frozen=True, slots=True, kw_only=True)])


def a_class(decorate: Callable[[type], type]) -> Any:
    class Point:
        """A place."""

        x: int
        y: int = 2
        tags: dict[str, int] = field(default_factory=dict)
        total: int = field(init=False, repr=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.x + self.y)

        @property
        def double(self) -> int:
            return self.x * 2

    return decorate(Point)


@both
def test_fields_come_from_arguments_defaults_and_factories(decorate: Any) -> None:
    point = a_class(decorate)
    first, second = point(x=1), point(x=1, y=5, tags={"a": 1})
    assert (first.x, first.y, first.tags, first.total, first.double) == (1, 2, {}, 3, 2)
    assert asdict(second) == {"x": 1, "y": 5, "tags": {"a": 1}, "total": 6}
    assert first.tags is not point(x=1).tags
    assert [each.name for each in fields(point)] == ["x", "y", "tags", "total"]
    assert replace(first, x=7).total == 9


@both
@pytest.mark.parametrize("arguments", [(1,), ()])
def test_arguments_have_names_and_none_is_missing(decorate: Any, arguments: tuple[int, ...]) -> None:
    with pytest.raises(TypeError):
        a_class(decorate)(*arguments)
    with pytest.raises(TypeError):
        a_class(decorate)(x=1, z=2)


@both
def test_nothing_can_be_set_added_or_deleted(decorate: Any) -> None:
    point = a_class(decorate)(x=1)
    changes: list[Callable[[], None]] = [
        lambda: setattr(point, "x", 2),
        lambda: setattr(point, "z", 2),
        lambda: delattr(point, "x"),
    ]
    for change in changes:
        with pytest.raises((FrozenInstanceError, TypeError)):
            change()
    assert not hasattr(point, "__dict__")


@both
def test_equality_is_that_of_class_and_fields_and_so_is_the_hash(decorate: Any) -> None:
    class Name:
        first: str

    class Other:
        first: str

    name, other = decorate(Name), decorate(Other)
    assert name(first="a") == name(first="a") != name(first="b")
    assert name(first="a") != other(first="a")
    assert len({name(first="a"), name(first="a"), name(first="b")}) == 2
    assert repr(name(first="a")).endswith("Name(first='a')")
    assert "total" not in repr(a_class(decorate)(x=1))


@both
def test_a_frozen_dataclass_may_inherit(decorate: Any) -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Wider(a_class(decorate)):  # type: ignore[misc]
        z: int = 3

    assert (Wider(x=1).z, Wider(x=1).total) == (3, 3)


@frozen
class Plain:
    a: int
    b: str = "b"


def test_a_value_is_copied_and_pickled() -> None:
    one = Plain(a=1)
    assert copy.copy(one) == copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one


def test_a_value_matches_by_keyword() -> None:
    match Plain(a=1):
        case Plain(a=found):
            assert found == 1
