"""Slots of a recipe: variants of this package, and those that other packages bring.

A package adds a variant by an entry point of the group `nmtdeep.variants`, whose name is the
variant's `type`, such as `package.name`, and whose object is a subclass of the slot's base. It is
imported when a recipe names it, and not before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import entry_points
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args

from pydantic import (
    BaseModel,
    Field,
    GetCoreSchemaHandler,
    SerializeAsAny,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from nmtdeep.config.section import ConflictError, Section
from nmtdeep.config.spelling import did_you_mean

GROUP = "nmtdeep.variants"


class Variant(Section):
    """Base of the bases that variants from other packages have, one for each slot.

    A subclass has a docstring whose first line is the method, `type: Literal["package.name"] =
    "package.name"`, its own fields with defaults and descriptions, and the methods of its base.
    """

    slot: ClassVar[str] = "variant"
    # Whether training can be recorded as a CUDA graph: forward and backward do the same each time,
    # and neither read the device nor draw random numbers on the host.
    capturable: ClassVar[bool] = True
    type: str


ExternalName = Annotated[str, Field(pattern=r"^\w+\.")]


class External(BaseModel, extra="allow"):
    """A variant of another package."""

    type: ExternalName


class Slot:
    """What a field with variants is checked by; see `OneOf`."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """The schema of a union that chooses by `type`: one of this package, or any other."""
        base = next((member for member in get_args(source) if _is_variant(member)), None)
        ours: Any = Union[tuple(member for member in get_args(source) if member is not base)]  # noqa: UP007
        sections = {tag_of(section): section for section in variants(ours)}
        names: Any = Literal.__getitem__(tuple(sections) or get_args(ours))
        choice = TypeAdapter(names)

        def check(value: Any, inner: ValidatorFunctionWrapHandler) -> Any:
            if isinstance(value, (base or Section, *sections.values())):
                return value
            tag = value.get("type") if isinstance(value, dict) else value
            tag = tag if isinstance(tag, str) else None
            section = find_variant(tag, base) if base and tag and "." in tag else sections.get(tag)
            if section:
                return section.model_validate(value if isinstance(value, dict) else {"type": tag})
            return choice.validate_python(value)

        written: Any = Union[names, ours, ExternalName, External]  # noqa: UP007
        # A serializer of ours would turn the exception of a signal into an error of pydantic.
        validator = WrapValidator(check, json_schema_input_type=written)
        slot = Annotated[ours, SerializeAsAny(), validator]
        return handler.generate_schema(slot)


Variants = TypeVar("Variants")
# One variant of a slot: a section with its `type`. `pre_norm` is read as `{type: pre_norm}`.
OneOf = Annotated[Variants, Slot]


def find_variant(name: str, base: type[Variant]) -> type[Variant]:
    """The variant of that name which an installed package has.

    Raises:
        ConflictError: if there is none, more than one, or none for the slot of `base`.
    """
    points = entry_points(group=GROUP)
    found = [point for point in points if point.name == name]
    packages = " and ".join(point.dist.name for point in found if point.dist)
    if not found:
        hint = (
            did_you_mean(name, [*points.names]) or f"install the package {name.partition('.')[0]}"
        )
        raise ConflictError(f"no installed package has the variant {name}", "type", hint=hint)
    if len(found) > 1:
        what = f"the packages {packages} each have a variant {name}"
        raise ConflictError(what, "type", hint="uninstall one of them")
    try:
        section = found[0].load()
    except Exception as error:
        what = f"{name} of the package {packages} cannot be imported ({error!r})"
        raise ConflictError(what, "type", hint="install a version of it that fits") from error
    if not _is_variant(section) or tag_of(section) != name:
        what = f"{name} of the package {packages} is not a variant of this type"
        raise ConflictError(what, "type", hint="correct the package")
    if not issubclass(section, base):
        what = f"{name} of the package {packages} is a {section.slot}, not a {base.slot}"
        raise ConflictError(what, "type", hint="choose another variant")
    return section


def packages_of(section: Section) -> dict[str, str]:
    """Package and version, such as `attnres 1.2`, of every variant of other packages inside."""
    named = {*re.findall(r'"type":"([^".]+[.][^"]+)"', section.model_dump_json())}
    return {
        point.name: f"{point.dist.name} {point.dist.version}" if point.dist else ""
        for point in (entry_points(group=GROUP) if named else ())  # takes milliseconds
        if point.name in named
    }


def missing_variants(needed: Mapping[str, str]) -> list[str]:
    """Those of `packages_of` that no installed package has."""
    return (
        sorted(set(needed) - {point.name for point in entry_points(group=GROUP)}) if needed else []
    )


def _is_variant(member: Any) -> bool:
    return isinstance(member, type) and issubclass(member, Variant)


def variants(annotation: Any) -> tuple[type[Section], ...]:
    """The sections of this package that a field of this type can hold; none for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return () if issubclass(annotation, Variant) else (annotation,)
    return tuple(section for part in get_args(annotation) for section in variants(part))


def section_of(annotation: Any, value: Any) -> type[Section] | None:
    """The section that a field of this type has for `value`, a mapping; None for a plain value."""
    options = variants(annotation)
    tag = value.get("type") if isinstance(value, dict) else None
    if isinstance(tag, str) and "." in tag:
        with suppress(ConflictError):
            return find_variant(tag, Variant)
    fitting = (option for option in options if tag_of(option) == tag)
    return next(fitting, options[0] if options else None)


def tag_of(section: type[Section]) -> str | None:
    """The `type` by which a variant is chosen."""
    field = section.model_fields.get("type")
    return None if field is None else str(field.default)
