"""Values <-> DynamoDB attributes, by the types that the values in `shared.domain` declare.

Written by name: a field that a newer version added reads as its default, one that is gone is ignored. Numbers go
through their shortest exact text; NaN and the infinities have none, and are refused here (TRAPS 22).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct

from shared.aws import keys
from shared.aws.keys import PARTITION, POSITION, Attribute, Item
from shared.domain.job import Job
from shared.domain.lifecycle import place_of
from shared.domain.work_index import IndexKey

Value = TypeVar("Value")


def encode(value: object) -> Attribute:
    """Any value of the domain: text, numbers, flags, enums, mappings, sequences, structs, None."""
    attribute = _scalar(value)
    if attribute is not None:
        return attribute
    if isinstance(value, Mapping):
        return {"M": {str(name): encode(inner) for name, inner in value.items()}}
    if isinstance(value, (list, tuple)):
        return {"L": [encode(inner) for inner in value]}
    if isinstance(value, Struct):
        return {"M": {name: encode(getattr(value, name)) for name in value.__struct_fields__}}
    raise TypeError(f"a {type(value).__name__} cannot be stored")


def _scalar(value: object) -> Attribute | None:
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):  # before int: True is one
        return {"BOOL": value}
    if isinstance(value, int):
        return {"N": str(value)}
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a number that is not finite cannot be stored")
        return {"N": repr(value)}
    return {"S": str(value)} if isinstance(value, str) else None


def present(values: Mapping[str, object]) -> dict[str, Attribute | None]:
    """Attributes to set, and None for those that an absent value removes."""
    return {name: None if value is None else encode(value) for name, value in values.items()}


def decode(hint: Any, attribute: Attribute) -> Any:
    """The value of type `hint` that `encode` wrote."""
    ((tag, raw),) = attribute.items()
    arguments = get_args(hint)
    if tag == "NULL":
        return None
    if tag == "L":
        return tuple(decode(arguments[0], inner) for inner in raw)
    if arguments and get_origin(hint) is not tuple:  # X | None, and it is not None
        return decode(next(each for each in arguments if each is not type(None)), attribute)
    if tag == "M":
        return load(hint, raw)
    return raw if tag == "BOOL" else hint(raw)


def load(cls: type[Value], item: Item, **given: object) -> Value:
    """An instance from an item's attributes; `given` are the fields that its key says."""
    declared: Any = cls
    hints = _hints(declared)
    stored = {name: decode(hint, item[name]) for name, hint in hints.items() if name in item and name not in given}
    return cls(**stored, **given)


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(cls).items() if name in cls.__struct_fields__}


# -- jobs


def item_of_job(job: Job) -> Item:
    """A whole row, for its creation: place in the index included, absent where the row has none."""
    values = {name: getattr(job, name) for name in _hints(Job) if name != "job_id"}
    place = place_of(job)
    placed = {PARTITION: place.partition, POSITION: place.position} if isinstance(place, IndexKey) else {}
    stored = {name: attribute for name, attribute in present(values | placed).items() if attribute is not None}
    return keys.job(job.job_id) | stored


def job_of_item(item: Item) -> Job:
    return load(Job, item, job_id=keys.job_id_of(item))
