"""The JSON that the service takes, checked at the door.

Whatever passes here is safe to write into the log: strings are proper Unicode, numbers finite,
sizes bounded.  What also depends on the state of the tagger is checked by the writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from tagstream.checks import short

__all__ = [
    "AnswerRequest",
    "ApplyRequest",
    "DeclareRequest",
    "DescribeRequest",
    "ExclusiveRequest",
    "ExplainRequest",
    "ForgetRequest",
    "Item",
    "LearnRequest",
    "LeaseRequest",
    "MergeRequest",
    "PoolRequest",
    "PromiseRequest",
    "PullRequest",
    "RefitRequest",
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
MAX_ABOUT = 10_000
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


Version = Annotated[
    int,
    Field(
        ge=0,
        le=1 << 62,
        description="The version of the item that you have seen; 0 for an item that was not "
        "learnt here or was forgotten. If somebody has changed the item since, the answer is 409 "
        "with what is there now, and nothing is changed.",
    ),
]
Tab = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9_-]{0,64}$", description="Which of your windows; any short name."),
]


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

    def question(self) -> dict[str, Any]:
        """Return it as the tagger is asked about it: with its id, if it has one."""
        return self.record() if self.id is None else {"id": self.id, **self.record()}


Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS), AfterValidator(_distinct)]


RefusedTags = Annotated[
    Tags, Field(description="Tags that it does not have. Without y, the others are not known.")
]


class NamedItem(Item):
    """An item that can be spoken of later."""

    id: Identifier


class TaggedItem(NamedItem):
    """An item with its tags; one whose id is known replaces that."""

    y: Tags | None = None
    no: RefusedTags | None = None
    key: Key | None = None
    version: Version | None = None

    @model_validator(mode="after")
    def _says_something(self) -> TaggedItem:
        if self.y is None and not self.no:
            raise ValueError("must have y or no")
        both = [tag for tag in self.no or () if tag in (self.y or ())]
        if both:
            raise ValueError(f"must not have a tag in y and in no, got {both[0]!r} in both")
        return self

    def body(self) -> dict[str, Any]:
        """Return the body of its event."""
        tags = {} if self.y is None else {"y": self.y}
        return {"id": self.id, **self.record(), **tags, **({"no": self.no} if self.no else {})}


def _alike(items: Sequence[Item]) -> Any:
    kinds = {(item.text is None, isinstance(item.x, dict)) for item in items}
    if len(kinds) > 1:
        raise ValueError("must be all texts, all lists or all objects of numbers")
    return items


Next = Annotated[
    bool,
    Field(
        description="Answer as if each item came next after those that were learnt, with the "
        "latest tags as evidence, instead of for any item."
    ),
]


class SuggestRequest(_Request):
    """Items to suggest tags for."""

    items: Annotated[
        list[Item], Field(min_length=1, max_length=MAX_ITEMS), AfterValidator(_alike)
    ] = Field(examples=[[{"text": "How do I sort a list?"}]])
    top: Annotated[int, Field(ge=1, le=MAX_TAGS)] = Field(
        20, description="How many scores to return, highest first."
    )
    next: Next = False


class ExplainRequest(_Request):
    """Items to explain the suggestions of."""

    items: Annotated[
        list[Item], Field(min_length=1, max_length=MAX_EXPLAINED), AfterValidator(_alike)
    ] = Field(examples=[[{"text": "How do I sort a list?"}]])
    next: Next = False


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
    version: Version | None = None

    @model_validator(mode="after")
    def _one_version(self) -> ForgetRequest:
        if self.version is not None and len(self.ids) > 1:
            raise ValueError("must have one id where it has a version")
        return self


class UndoRequest(_Request):
    """Which of your changes to take back; without a position your last one."""

    position: Annotated[int, Field(ge=1, le=1 << 62)] | None = None
    key: Key | None = None


class RetagRequest(_Request):
    """Stored items, with tags that each of them gets and loses."""

    ids: Annotated[list[Identifier], Field(min_length=1, max_length=MAX_ITEMS)]
    add: Tags = []
    remove: Tags = []
    key: Key | None = None

    @model_validator(mode="after")
    def _some_tags(self) -> RetagRequest:
        if not self.add and not self.remove:
            raise ValueError("must have tags in add or in remove")
        both = {*self.add} & {*self.remove}
        if both:
            raise ValueError(f"must not have a tag in add and in remove, got {min(both)!r}")
        return self


class TokenRequest(_Request):
    """A person and what this person may do."""

    name: Annotated[Name, Field(max_length=100)]
    role: Literal["read", "write", "admin"] = "write"


class RevokeRequest(_Request):
    """Whose token is taken back."""

    name: Name


class LeaseRequest(_Request):
    """An item that somebody is tagging now."""

    id: Identifier
    tab: Tab = ""


class RenameRequest(_Request):
    """A tag and its new name, which must not be in use."""

    old: Tag
    new: Tag
    key: Key | None = None


About = Annotated[str, Field(max_length=MAX_ABOUT)]


class DeclareRequest(_Request):
    """Tags to know before they have an example: names, or names and descriptions."""

    tags: (
        Annotated[list[Tag], Field(min_length=1, max_length=MAX_TAGS), AfterValidator(_distinct)]
        | Annotated[dict[Tag, About], Field(min_length=1, max_length=MAX_TAGS)]
    ) = Field(examples=[{"travel": "trips, trains, hotels", "music": ""}])
    key: Key | None = None

    def body(self) -> dict[str, Any]:
        """Return the body of its event."""
        return {"tags": self.tags if isinstance(self.tags, dict) else dict.fromkeys(self.tags, "")}


class DescribeRequest(_Request):
    """A tag and what it is about, in place of what was said before."""

    tag: Tag
    about: About
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


class ApplyRequest(_Request):
    """Items whose tags are applied where that was promised."""

    items: Annotated[
        list[NamedItem], Field(min_length=1, max_length=MAX_ITEMS), AfterValidator(_alike)
    ]


class PromiseRequest(_Request):
    """What may be done with a tag, and the precision that is promised where it is applied."""

    tag: Tag
    mode: Literal["auto", "suggest", "never"] = "auto"
    promise: Annotated[float, Field(ge=0.5, le=0.999)] = 0.95
    key: Key | None = None


class AnswerRequest(_Request):
    """Stored items that have a tag, and others that do not."""

    tag: Tag
    accept: Annotated[list[Identifier], Field(max_length=MAX_ITEMS)] = []
    refuse: Annotated[list[Identifier], Field(max_length=MAX_ITEMS)] = []
    key: Key | None = None

    @model_validator(mode="after")
    def _some(self) -> AnswerRequest:
        if not self.accept and not self.refuse:
            raise ValueError("must have ids in accept or in refuse")
        return self


class ExclusiveRequest(_Request):
    """Tags of which an item has at most one."""

    tags: Annotated[list[Tag], Field(min_length=1, max_length=MAX_TAGS), AfterValidator(_distinct)]
    undo: bool = Field(False, description="An item may have these tags beside others again.")
    key: Key | None = None

    @model_validator(mode="after")
    def _enough(self) -> ExclusiveRequest:
        if len(self.tags) < 2 and not self.undo:
            raise ValueError("must name at least two tags")
        return self


class PullRequest(_Request):
    """A project of Label Studio whose annotations are fetched."""

    project: Annotated[int, Field(ge=0, lt=1 << 59)]
    forget_missing: bool = Field(
        False,
        description="Also forget known items whose task Label Studio does not send any more. "
        "This cannot be undone.",
    )


class RefitRequest(_Request):
    """A fit of all that is stored, now instead of at its next time."""

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
    got = "" if first.get("type") == "missing" else f", got {short(repr(first.get('input')))}"
    return field, f"{what} {message}{got}"
