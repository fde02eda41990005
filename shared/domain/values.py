"""`@frozen`: a frozen dataclass with slots and keyword-only fields, at a quarter of what its import costs otherwise.

`dataclasses` compiles six methods for each class, at every cold start: a third of a handler's import. Of these only
`__init__` depends on the class, and is compiled when the first value is made: no handler makes values of all classes.
The others are the same for all of them, and stand here once. To type checkers, `fields`, `replace`, `asdict` and a
subclass's `@dataclass(frozen=True)` it is what it says it is.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from inspect import get_annotations
from typing import Any, TypeVar, dataclass_transform

Class = TypeVar("Class")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[Class]) -> type[Class]:
    said = get_annotations(cls)
    cls.__annotations__ = dict.fromkeys(said, object)  # in text it would search for ClassVar, which no class here has
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(cls)
    made.__annotations__ = said
    for name, text in said.items():
        made.__dataclass_fields__[name].type = text
    made.__init__ = _init_at_first_use(made)
    for name, method in _SHARED.items():
        if name not in cls.__dict__ or name == "__hash__":
            setattr(made, name, method)
    made.__dataclass_params__.frozen = True
    return made  # type: ignore[no-any-return]


def _init_at_first_use(cls: Any) -> Any:
    def first(self: Any, *args: Any, **fields_given: Any) -> None:
        cls.__init__ = _init_of(cls)  # two threads may both do it: they make the same
        cls.__init__(self, *args, **fields_given)

    return first


def _init_of(cls: Any) -> Any:
    """As `dataclasses` would write it: each field from its argument, its default, or a new one from its factory."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    arguments, body = [], []
    for each in (each for each in fields(cls) if each.init):
        name, given = each.name, each.name
        if each.default is not MISSING:
            names[f"_default_{name}"] = each.default
            arguments.append(f"{name}=_default_{name}")
        elif each.default_factory is not MISSING:
            names[f"_factory_{name}"] = each.default_factory
            arguments.append(f"{name}=_missing")
            given = f"_factory_{name}() if {name} is _missing else {name}"
        else:
            arguments.append(name)
        body.append(f" _set(self, {name!r}, {given})")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    signature = ", ".join(["self", *(["*", *arguments] if arguments else [])])
    source = f"def __init__({signature}):\n" + ("\n".join(body) or " pass")
    exec(source, names)  # noqa: S102 - the fields' names are identifiers, and nothing else of the source is theirs
    return names["__init__"]


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self.__dataclass_fields__])


def _equal(self: Any, other: object) -> Any:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _repr(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name, each in self.__dataclass_fields__.items() if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _restore(self: Any, state: tuple[Any, ...]) -> None:
    for name, each in zip(self.__dataclass_fields__, state, strict=True):
        object.__setattr__(self, name, each)


def _refuse_set(_self: Any, name: str, _value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(_self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


_SHARED = {
    "__eq__": _equal,
    "__hash__": _hash,
    "__repr__": _repr,
    "__getstate__": _values,
    "__setstate__": _restore,
    "__setattr__": _refuse_set,
    "__delattr__": _refuse_delete,
}
