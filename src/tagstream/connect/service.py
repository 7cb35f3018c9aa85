"""A target that is a service: everything over HTTP, with a token of the connector's own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tagstream.connect.target import Lesson, Refused, Suggested
from tagstream.connect.web import Web, WebError

__all__ = ["ServiceTarget"]

MOST_ITEMS = 500  # of one call; a service takes 1,000
MOST_BYTES = 4 << 20  # of one call; a service takes 8 MiB
PAGE = 200
MOST_LOOKS, LIST_PAUSE = 60, 0.5  # at a list that is being made, and the seconds between them
MOST_LOOKED_AT = 5000  # items that are looked through for words
REFUSES = (400, 404, 409, 422)  # what was sent cannot be taken; other statuses are trouble


class ServiceTarget:
    """A service.

    Parameters
    ----------
    web : Web
    dry : bool
        Send no change.
    """

    def __init__(self, web: Web, dry: bool = False) -> None:
        self.web, self.dry = web, dry

    @property
    def name(self) -> str:
        """Its address."""
        return self.web.root

    def mark(self) -> int:
        """Return the position of its log."""
        return int(self._get("/v1/info")["position"])

    # ------------------------------------------------------------------ asking
    def suggest(self, items: Sequence[dict[str, Any]]) -> list[Suggested]:
        """Suggest tags for items."""
        found: list[Suggested] = []
        for block in _blocks([*items]):
            said = self._post("/v1/suggest", {"items": block})
            found += [Suggested.of(one) for one in said["items"]]
        return found

    def explain(self, item: dict[str, Any]) -> dict[str, Any]:
        """Say why."""
        why: dict[str, Any] = self._post("/v1/explain", {"items": [item]})["items"][0]
        return why

    def tags(self) -> list[dict[str, Any]]:
        """List the tags."""
        keys = ("tag", "count", "about")
        return [{key: one[key] for key in keys} for one in self._get("/v1/tags")["tags"]]

    def find(self, words: Sequence[str], tag: str | None, n: int) -> list[dict[str, Any]]:
        """List items that were learnt by the service, the latest first."""
        found: list[dict[str, Any]] = []
        left = MOST_LOOKED_AT
        wanted = [word.casefold() for word in words]
        query: dict[str, Any] = {"n": PAGE} if tag is None else {"n": PAGE, "tag": tag}
        while left > 0 and len(found) < n:
            page = self._get("/v1/items", **query)["items"]
            for item in page:
                text = item.get("text", "")
                if all(word in text.casefold() for word in wanted):
                    found.append({"id": item["id"], "text": text, "tags": sorted(item["y"])})
            if len(page) < PAGE:
                break
            query["before"] = page[-1]["position"]
            left -= len(page)
        return found[:n]

    def candidates(self, tag: str, n: int) -> list[dict[str, Any]]:
        """List items that should have a tag."""
        return self._list("/v1/candidates", tag=tag, n=n)

    def review(self, n: int) -> list[dict[str, Any]]:
        """List items whose tags look wrong."""
        return self._list("/v1/review", n=n)

    def _list(self, path: str, **query: Any) -> list[dict[str, Any]]:
        """Return a list that the service makes in the background."""
        for _ in range(MOST_LOOKS):
            said = self._get(path, **query)
            if said["complete"]:
                found: list[dict[str, Any]] = said["items"]
                return found
            self.web.wait(LIST_PAUSE)
        raise Refused("the list is still being made; ask again in a minute")

    # ------------------------------------------------------------------ changing
    def learn(self, lessons: Sequence[Lesson], keys: Sequence[str | None]) -> None:
        """Learn lessons, each block as a whole."""
        told = [
            {**one.record(), **({} if key is None else {"key": key})}
            for one, key in zip(lessons, keys, strict=True)
        ]
        for block in _blocks(told):
            self._change("/v1/learn", {"items": block})

    def forget(self, ids: Sequence[str]) -> None:
        """Forget items."""
        for start in range(0, len(ids), MOST_ITEMS):
            self._change("/v1/forget", {"ids": [*ids[start : start + MOST_ITEMS]]})

    def refit(self) -> bool:
        """Fit what is stored, if the token is an admin's."""
        try:
            self._change("/v1/refit", {})
        except WebError as error:
            if error.status != 403:
                raise
            return False
        return True

    def correct(self, id: str, add: Sequence[str], remove: Sequence[str]) -> list[str]:
        """Change the tags of an item, unless somebody else changes it meanwhile."""
        from urllib.parse import quote

        item = self._get(f"/v1/items/{quote(id, safe='')}")
        tags = [tag for tag in item["y"] if tag not in remove]
        tags += [tag for tag in add if tag not in tags]
        no = [*dict.fromkeys([*item.get("no", ()), *remove])]
        no = [tag for tag in no if tag not in tags]
        kept = {key: item[key] for key in ("id", "text", "x", "version") if key in item}
        body = {**kept, "y": tags, **({"no": no} if no else {})}
        self._change("/v1/learn", {"items": [body]})
        return tags

    # ------------------------------------------------------------------ requests
    def _get(self, path: str, **query: Any) -> Any:
        try:
            return self.web.ask("GET", path, **query)
        except WebError as error:
            raise _plain(error) from None

    def _post(self, path: str, body: Any) -> Any:
        try:
            return self.web.ask("POST", path, body)
        except WebError as error:
            raise _plain(error) from None

    def _change(self, path: str, body: Any) -> None:
        if not self.dry:
            self._post(path, body)


def _plain(error: WebError) -> Exception:
    """Return the error of what cannot be taken as `Refused`, in the words of the service."""
    said = error.said
    if error.status in REFUSES and isinstance(said, dict) and isinstance(said.get("error"), str):
        return Refused(said["error"])
    return error


def _blocks(items: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the items in blocks that a service takes."""
    block: list[dict[str, Any]] = []
    size = 0
    for item in items:
        n = len(json.dumps(item, ensure_ascii=False).encode("utf-8", "replace"))
        if block and (len(block) >= MOST_ITEMS or size + n > MOST_BYTES):
            yield block
            block, size = [], 0
        block.append(item)
        size += n
    if block:
        yield block
