"""The JSON that the service takes, checked at the door.

Whatever passes here is safe to write into the log: strings are proper Unicode, numbers finite,
sizes bounded.  What also depends on the state of the tagger is checked by the writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "ExplainRequest",
    "ForgetRequest",
    "Item",
    "LearnRequest",
    "MergeRequest",
    "PoolRequest",
    "RemoveRequest",
    "RenameRequest",
    "SnapshotRequest",
    "SuggestRequest",
    "error_of",
]

MAX_BODY = 8 << 20
MAX_ITEMS = 1000
MAX_EXPLAINED = 20
MAX_TEXT = 100_000
MAX_NUMBERS = 100_000
MAX_TAGS = 1000
MAX_NAME = 200
# Squares and their sums stay finite, in single precision too.
MAX_NUMBER = 1e12


def _name(value: str) -> str:
    if value != value.strip() or not value.isprintable():
        raise ValueError("must be printable and not begin or end with a blank")
    return value


def _distinct(values: Sequence[str]) -> list[str]:
    return [*dict.fromkeys(values)]


Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME), AfterValidator(_name)]
Tag = Annotated[Name, Field(examples=["python"])]
Identifier = Annotated[
    Annotated[str, Field(min_length=1, max_length=MAX_NAME), AfterValidator(_name)]
    | Annotated[int, Field(ge=-(1 << 62), le=1 << 62)],
    AfterValidator(str),
]
Key = Annotated[
    Name,
    Field(description="Your own unique key of this change: a retry with it is not done twice."),
]
Number = Annotated[float, Field(ge=-MAX_NUMBER, le=MAX_NUMBER, allow_inf_nan=False)]
Numbers = (
    Annotated[list[Number], Field(min_length=1, max_length=MAX_NUMBERS)]
    | Annotated[dict[Name, Number], Field(min_length=1, max_length=MAX_NUMBERS)]
)


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Item(_Request):
    """An item: a text, a list of numbers, or an object of named numbers."""

    id: Identifier | None = None
    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)] | None = None
    x: Numbers | None = None

    @model_validator(mode="after")
    def _one_of(self) -> Item:
        if (self.text is None) == (self.x is None):
            raise ValueError("must have either text or x")
        return self

    def record(self) -> dict[str, Any]:
        """Return it as the tagger takes it."""
        return {"text": self.text} if self.text is not None else {"x": self.x}


class NamedItem(Item):
    """An item that can be spoken of later."""

    id: Identifier


class TaggedItem(NamedItem):
    """An item with its tags; one whose id is known replaces that."""

    y: Annotated[list[Tag], Field(max_length=MAX_TAGS), AfterValidator(_distinct)]
    key: Key | None = None

    def body(self) -> dict[str, Any]:
        """Return the body of its event."""
        return {"id": self.id, **self.record(), "y": self.y}


def _alike(items: Sequence[Item]) -> Any:
    kinds = {(item.text is None, isinstance(item.x, dict)) for item in items}
    if len(kinds) > 1:
        raise ValueError("must be all texts, all lists or all objects of numbers")
    return items


class SuggestRequest(_Request):
    """Items to suggest tags for."""

    items: Annotated[
        list[Item], Field(min_length=1, max_length=MAX_ITEMS), AfterValidator(_alike)
    ] = Field(examples=[[{"text": "How do I sort a list?"}]])
    top: Annotated[int, Field(ge=1, le=MAX_TAGS)] = Field(
        20, description="How many scores to return, highest first."
    )


class ExplainRequest(_Request):
    """Items to explain the suggestions of."""

    items: Annotated[
        list[Item], Field(min_length=1, max_length=MAX_EXPLAINED), AfterValidator(_alike)
    ] = Field(examples=[[{"text": "How do I sort a list?"}]])


class LearnRequest(_Request):
    """Items to learn, as a whole or not at all."""

    items: Annotated[
        list[TaggedItem], Field(min_length=1, max_length=MAX_ITEMS), AfterValidator(_alike)
    ] = Field(examples=[[{"id": "7", "text": "How do I sort a list?", "y": ["python"]}]])


class PoolRequest(_Request):
    """Items that wait for tags."""

    items: Annotated[
        list[NamedItem], Field(min_length=1, max_length=MAX_ITEMS), AfterValidator(_alike)
    ]


class ForgetRequest(_Request):
    """Items to forget; ids that are not known are passed over."""

    ids: Annotated[list[Identifier], Field(min_length=1, max_length=MAX_ITEMS)]
    key: Key | None = None


class RenameRequest(_Request):
    """A tag and its new name, which must not be in use."""

    old: Tag
    new: Tag
    key: Key | None = None


class MergeRequest(_Request):
    """Tags that become one."""

    tags: Annotated[list[Tag], Field(min_length=1, max_length=MAX_TAGS), AfterValidator(_distinct)]
    into: Tag
    key: Key | None = None


class RemoveRequest(_Request):
    """A tag to remove from all items."""

    tag: Tag
    key: Key | None = None


class SnapshotRequest(_Request):
    """Nothing to say."""


def error_of(errors: Sequence[Any]) -> tuple[str, str]:
    """Return the field and the message of what pydantic found first.

    Examples
    --------
    >>> error_of([{"loc": ("body", "items", 0, "text"), "msg": "Input should be a valid string",
    ...            "input": 3}])
    ('items[0].text', 'items[0].text must be a valid string, got 3')
    """
    first = min(errors, key=lambda error: -len(error["loc"]))
    if first.get("type") == "json_invalid":
        where = first["loc"][-1] + 1
        return "", f"the body must be JSON: {first['ctx']['error']} at character {where}"
    field = ""
    for part in first["loc"]:
        if part in ("body", "query", "path", "header") and not field:
            continue
        if isinstance(part, int):
            field += f"[{part}]"
        elif part.isidentifier() or part.isalnum():
            field += f".{part}" if field else part
    message = first["msg"].removeprefix("Value error, ")
    for old, new in (("Input should", "must"), ("Field required", "must be there"),
                     ("Extra inputs are not permitted", "must not be there"),
                     ("String should", "must"), ("List should", "must"),
                     ("Dictionary should", "must"), ("must match", "must match")):  # fmt: skip
        if message.startswith(old):
            message = new + message[len(old) :]
    if not message.startswith("must"):
        message = f"must be valid ({message})"
    what = field or "the body"
    got = "" if first.get("type") == "missing" else f", got {_short(first.get('input'))}"
    return field, f"{what} {message}{got}"


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
