"""Values <-> DynamoDB attributes, by the fields that the structs in `shared.domain` declare.

Written by name, so that two versions of Sluice can share a table: a field that is not stored reads as its default, an
attribute that no field asks for is ignored. NaN and the infinities have no attribute and are refused (fact F21).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, TypeVar

from msgspec import Struct, convert, to_builtins

from shared.aws import keys
from shared.aws.keys import PARTITION, POSITION, Attribute, Item
from shared.domain.job import Job
from shared.domain.lifecycle import place_of
from shared.domain.work_index import IndexKey

Value = TypeVar("Value", bound=Struct)


def encode(value: object) -> Attribute:
    """Any value of the domain. TypeError for what is none, ValueError for a number that is not finite."""
    return _attribute(to_builtins(value))


def present(values: Mapping[str, object]) -> dict[str, Attribute | None]:
    """Attributes to set, and None for those that an absent value removes."""
    return {name: None if value is None else encode(value) for name, value in values.items()}


def stored(values: Mapping[str, object]) -> Item:
    """The attributes of a new item: an absent value has none."""
    return {name: encode(value) for name, value in values.items() if value is not None}


def load(cls: type[Value], item: Item, **given: object) -> Value:
    """An instance from an item's attributes; `given` are the fields that its key says."""
    fields = {name: _plain(item[name]) for name in cls.__struct_fields__ if name in item}
    return convert(fields | given, cls)


def item_of_job(job: Job) -> Item:
    """A whole row, for its creation: place in the index included, absent where the row has none."""
    fields: dict[str, object] = to_builtins(job)
    del fields["job_id"]
    place = place_of(job)
    placed = {PARTITION: place.partition, POSITION: place.position} if isinstance(place, IndexKey) else {}
    return keys.job(job.job_id) | stored(fields | placed)


def job_of_item(item: Item) -> Job:
    return load(Job, item, job_id=keys.job_id_of(item))


def _attribute(plain: Any) -> Attribute:
    match plain:
        case None:
            return {"NULL": True}
        case bool():  # before int: True is one
            return {"BOOL": plain}
        case float() if not isfinite(plain):
            raise ValueError("a number that is not finite cannot be stored")
        case int() | float():  # the shortest text that reads as the same number
            return {"N": repr(plain)}
        case str():
            return {"S": plain}
        case dict():
            return {"M": {name: _attribute(inner) for name, inner in plain.items()}}
        case list() | tuple():
            return {"L": [_attribute(inner) for inner in plain]}
    raise TypeError(f"a {type(plain).__name__} cannot be stored")


def _plain(attribute: Attribute) -> Any:
    """DynamoDB writes 2.0 as 2: `convert` makes it a float again where the field is one."""
    ((tag, content),) = attribute.items()
    match tag:
        case "NULL":
            return None
        case "N":
            return int(content) if content.lstrip("-").isdigit() else float(content)
        case "M":
            return {name: _plain(inner) for name, inner in content.items()}
        case "L":
            return [_plain(inner) for inner in content]
    return content
