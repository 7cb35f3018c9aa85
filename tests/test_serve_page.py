"""The page in a real browser: each view's main action by mouse and by keys."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from browser import (
    MARKUP,
    VIEWS,
    browser,
    example,
    example_folder,
    learnt,
    playwright,
    stored,
    watch,
)
from serving import serving
from tagstream.serve.tokens import Tokens

__all__ = ["browser", "example", "example_folder", "watch"]  # fixtures
expect = playwright.expect


# ---------------------------------------------------------------------- tag
def test_an_item_is_tagged_by_mouse_and_the_answer_taken_back(watch, example):
    window = watch(example)
    page = window.page
    text = window.item()
    chosen = next(tag for tag, on in window.chips().items() if not on)
    page.click(f'.chip[data-tag="{chosen}"]')
    window.choose("Find or add a tag", MARKUP)
    assert {chosen, MARKUP} <= window.ticked()
    tags = window.ticked()
    window.button("Save").click()
    window.says(re.compile("^Saved: "))
    assert window.item() != text
    newest = learnt(example)[0]
    assert (newest["text"], {*newest["y"]}, newest["source"]) == (text, tags, "page")
    assert example.get("/v1/next").json()["n_pool"] == 29
    assert page.title() == "Tag · tagstream"
    window.sees(".count", "1 of 30")
    page.locator("#toast").get_by_role("button", name="Undo").click()
    window.says("Undone.")
    expect(page.locator("#item")).to_have_text(text)
    assert window.ticked() == tags  # what was ticked is ticked again
    assert example.get("/v1/next").json()["n_pool"] == 30
    assert learnt(example)[0]["text"] != text
    assert window.hosts == {example.url.split("/")[2]}


def test_an_item_is_tagged_by_keys_alone(watch, example):
    window = watch(example)
    page = window.page
    text, before = window.item(), window.chips()
    first = next(iter(before))
    window.press("1")
    assert window.chips()[first] != before[first]
    window.press("a")
    window.type("fresh idea")
    window.press("Enter", "Escape")
    tags = window.ticked()
    assert "fresh idea" in tags
    window.press("Enter")
    window.says(re.compile("^Saved: .*fresh idea"))
    newest = learnt(example)[0]
    assert (newest["text"], {*newest["y"]}) == (text, tags)
    window.press("u")
    window.says("Undone.")
    expect(page.locator("#item")).to_have_text(text)
    assert example.get("/v1/next").json()["n_pool"] == 30


def test_no_tags_is_a_choice_of_its_own(watch, example):
    window = watch(example)
    text = window.item()
    for tag in window.ticked():
        window.page.click(f'.chip[data-tag="{tag}"]')
    expect(window.button("Save")).to_be_disabled()
    window.press("Enter")  # nothing is ticked: nothing happens
    window.press("0")
    window.says("Saved: no tags")
    assert (learnt(example)[0]["text"], learnt(example)[0]["y"]) == (text, [])
    text = window.item()
    window.button("No tags").click()
    expect(window.page.locator("#item")).not_to_have_text(text)
    window.saved()
    assert (learnt(example)[0]["text"], learnt(example)[0]["y"]) == (text, [])


def test_a_skipped_item_is_free_for_others(watch, example):
    window = watch(example)
    text = window.item()
    leases = example.service.leases
    assert text not in {i["text"] for i in example.get("/v1/next?n=100").json()["items"]}
    window.press("s")
    expect(window.page.locator("#item")).not_to_have_text(text)
    second = window.item()
    window.button("Skip").click()
    expect(window.page.locator("#item")).not_to_have_text(second)
    offered = {item["text"]: item["id"] for item in example.get("/v1/next?n=100").json()["items"]}
    assert {text, second} <= {*offered}
    assert leases.holder(offered[text]) is None
    assert example.get("/v1/next").json()["n_pool"] == 30


def test_skipped_items_come_again_when_nothing_else_is_left(watch, tmp_path):
    with serving(tmp_path) as client:
        items = [{"id": name, "text": f"{name} thing"} for name in ("one", "other")]
        assert client.post("/v1/pool", json={"items": items}).status_code == 200
        window = watch(client)
        first = window.item()
        window.press("s")
        expect(window.page.locator("#item")).not_to_have_text(first)
        window.press("s")
        expect(window.page.locator("#item")).to_have_text(first)


def test_thirty_items_are_tagged_by_keys_alone(watch, example):
    window = watch(example)
    given = {}
    for i in range(30):
        text = window.item()
        assert text not in given
        window.press("a")
        window.type(f"kind {i % 3}")
        window.press("Enter", "Control+Enter")
        given[text] = f"kind {i % 3}"
        if i < 29:
            expect(window.page.locator("#item")).not_to_have_text(text)
    window.sees(".empty h2", "Nothing is waiting")
    window.sees(".count", "30 of 30")
    found = {item["text"]: item["y"] for item in learnt(example, 30)}
    assert found.keys() == given.keys()
    assert all(given[text] in tags for text, tags in found.items())


def test_why_and_descriptions_are_shown_on_demand(watch, example):
    window = watch(example)
    window.press("n")
    window.page.fill("#own", "The rear brake of my bicycle rubs a bit")
    window.sees('.chip[data-tag="bike"][aria-checked="true"] .why', "bicycle")  # the reason
    window.press("Escape", "d")
    window.sees('.chip[data-tag="bike"] .why', "bicycle, cycling, wheel")  # the description
    window.press("w")
    expect(window.page.locator(".near mark", has_text="brake").first).to_be_visible()
    expect(window.page.locator(".near li")).to_have_count(4)
    assert window.page.locator(".parts").count() >= 1
    window.button("Why?").click()
    expect(window.page.locator(".near")).to_have_count(0)


def test_a_text_of_ones_own_is_one_item(watch, example):
    window = watch(example)
    mail = "Hello,\n\nthe chain of my bike\ncame off.\n\nThanks"
    window.page.locator(".bar-row").get_by_role("button", name="Own text").click()
    window.page.fill("#own", mail)
    window.sees('.chip[data-tag="bike"]', "bike")
    window.choose("Find or add a tag", "repair")
    window.press("Control+Enter")
    window.says(re.compile("^Saved: .*repair"))
    assert learnt(example)[0]["text"] == mail
    expect(window.page.locator("#own")).to_have_value("")
    window.press("Escape", "Escape")
    window.page.wait_for_selector("#item")
    window.page.locator(".lines button").first.click()  # it stands among those saved here
    window.sees("#item", "the chain of my bike")
    window.choose("Find or add a tag", "garden")
    window.button("Save").click()
    window.says(re.compile("^Saved: .*garden"))
    assert {"repair", "garden"} <= {*learnt(example)[0]["y"]}


def test_a_young_model_shows_its_best_guesses(watch, tmp_path):
    with serving(tmp_path) as client:  # four answers, each as likely as the others
        names = ("red", "green", "blue", "grey")
        items = [{"id": tag, "text": f"a {tag} thing", "y": [tag]} for tag in names]
        assert client.post("/v1/learn", json={"items": items}).status_code == 200
        client.post("/v1/pool", json={"items": [{"id": "1", "text": "a new thing"}]})
        window = watch(client)
        window.sees("#chips-title", "Best guesses")
        assert len(window.chips()) == 3
        assert window.ticked() == set()
        second = [*window.chips()][1]
        window.press("2", "Enter")
        window.says(f"Saved: {second}")
        assert stored(client, "1")["y"] == [second]


def test_the_order_of_the_queue_is_chosen(watch, example):
    window = watch(example)
    first = example.get("/v1/next?n=1&order=arrival").json()["items"][0]["text"]
    window.page.get_by_label("Order of the queue").select_option("arrival")
    expect(window.page.locator("#item")).to_have_text(first)
    window.page.get_by_label("Order of the queue").select_option("tag:bike")
    expect(window.page.locator("#item")).to_contain_text(re.compile("bike|cycl", re.IGNORECASE))


# ---------------------------------------------------------------------- review
def test_doubtful_tags_are_corrected_by_mouse_and_by_keys(watch, example):
    window = watch(example, "review")
    row = window.page.locator(".row-card").first
    row.get_by_role("button", name="Correct it").click()
    window.says("Corrected: 1 item")
    first = learnt(example)[0]
    assert first["source"] == "page"
    history = example.get(f"/v1/items/{first['id']}/history").json()["items"]
    assert history[-1]["tags"] != history[-2]["tags"]
    window.page.locator("#toast").get_by_role("button", name="Undo").click()
    window.says("Undone.")
    assert {*stored(example, first["id"])["y"]} == {*history[-2]["tags"]}
    quotes = window.page.locator(".row-card .quote")
    expect(quotes.nth(1)).to_be_visible()
    texts = {quotes.nth(i).inner_text() for i in (0, 1)}
    window.press("j", "A")  # this one and all above
    window.says("Corrected: 2 items")
    assert {item["text"] for item in learnt(example, 2)} == texts
    window.press("u")
    window.says("Undone.")
    window.press("x")
    window.says(re.compile("^Left as it is"))


def test_candidates_are_accepted_and_refused(watch, example):
    window = watch(example, "review")
    window.press("2")
    window.choose("Tag", "bike")
    texts = window.page.locator(".row-card .quote")
    expect(texts.nth(2)).to_be_visible()
    first, second = texts.nth(0).inner_text(), texts.nth(1).inner_text()
    by_text = {item["text"]: item["id"] for item in learnt(example, 200)}
    window.page.locator(".row-card").first.get_by_role(
        "button", name=re.compile("^Has it not")
    ).click()
    window.says("bike: refused for 1 item")
    assert "bike" in stored(example, by_text[first])["no"]
    expect(texts.first).to_have_text(second)
    window.press("y")
    window.says("bike: given to 1 item")
    assert "bike" in stored(example, by_text[second])["y"]
    third, fourth = texts.nth(0).inner_text(), texts.nth(1).inner_text()
    window.press("j")
    window.button("Accept these 2, all above this line").click()
    window.says("bike: given to 2 items")
    assert all("bike" in stored(example, by_text[text])["y"] for text in (third, fourth))
    window.press("u")
    window.says("Undone.")
    assert not any("bike" in stored(example, by_text[text])["y"] for text in (third, fourth))


def test_twins_are_merged(watch, example):
    window = watch(example, "review")
    window.button("Twins").click()
    pair = example.get("/v1/tags/similar").json()["items"]
    row = window.page.locator(".row-card").first
    row.get_by_role("button", name=re.compile("^Merge into")).first.click()
    window.says(re.compile("is part of .* now"))
    tags = {entry["tag"] for entry in example.get("/v1/tags").json()["tags"]}
    assert len(tags) == 8
    assert isinstance(pair, list)


def test_near_copies_get_the_same_tags(watch, example):
    items = [
        {"id": f"copy-{i}", "text": "Where can I buy a used tent for the summer?", "y": [tag]}
        for i, tag in enumerate(("travel", "money"))
    ]
    assert example.post("/v1/learn", json={"items": items}).status_code == 200
    window = watch(example, "review")
    window.press("4")
    window.button("Give all: ").first.click()
    window.says(re.compile("^2 items have the same tags now"))
    assert all({*stored(example, f"copy-{i}")["y"]} == {"travel", "money"} for i in (0, 1))


def test_a_quarantined_change_is_shown(watch, tmp_path):
    from fake_tagger import FakeTagger

    class Fails(FakeTagger):
        def learn(self, records: Any, **options: Any) -> int:
            if any("boom" in record["text"] for record in records):
                raise IndexError("boom")
            return super().learn(records, **options)

    with serving(tmp_path, tagger=Fails) as client:
        body = {"items": [{"id": "1", "text": "boom", "y": ["a"]}]}
        assert client.post("/v1/learn", json=body).status_code == 422
        window = watch(client, "items")
        window.sees("#warnings", "quarantined")
        window.page.get_by_role("link", name="Show them").click()
        window.sees(".row-card", "IndexError")


# ---------------------------------------------------------------------- items
def test_items_are_searched_filtered_and_changed_together(watch, example):
    window = watch(example, "items")
    page = window.page
    page.get_by_label("Search items").fill("bicycle")
    expect(page.locator(".item-row")).not_to_have_count(50)
    found = page.locator(".item-row .plain").first
    expect(found).to_contain_text(re.compile("bicycle", re.IGNORECASE))
    page.get_by_label("Search items").fill("")
    window.choose("Tag", "money")
    expect(page.locator(".item-row .tags").first).to_contain_text("money")
    expect(page.locator(".head .hint")).to_have_text("23 found")
    for i in (0, 1):
        page.locator(".item-row input[type=checkbox]").nth(i).check()
    texts = [page.locator(".item-row .plain").nth(i).inner_text() for i in (0, 1)]
    window.choose("Add a tag", "checked")
    window.says("checked added to 2 items")
    with_tag = example.get("/v1/items?tag=checked").json()["items"]
    assert {item["text"] for item in with_tag} == {*texts}
    page.locator("#toast").get_by_role("button", name="Undo").click()
    window.says("Undone.")
    assert example.get("/v1/items?tag=checked").json()["items"] == []


def test_items_are_changed_together_by_keys(watch, example):
    window = watch(example, "items")
    window.page.wait_for_selector(".item-row")
    window.press("x", "j", "j", "x", "a")
    window.type("by keys")
    window.press("Enter")
    window.says("by keys added to 2 items")
    found = example.get("/v1/items?tag=by keys").json()["items"]
    assert len(found) == 2
    window.press("Escape", "/")
    window.type(found[0]["text"])
    window.press("Escape")
    expect(window.page.locator(".item-row")).to_have_count(1)
    window.press("x", "f")
    window.page.locator("#ask").get_by_role("button", name="Forget").click()
    window.says("Forgotten: 1 item")
    assert example.get(f"/v1/items/{found[0]['id']}").status_code == 404
    window.press("u")
    window.says("Undone.")
    assert "by keys" in stored(example, found[0]["id"])["y"]


def test_the_history_of_an_item_is_shown_and_leads_to_a_correction(watch, example):
    window = watch(example, "items")
    window.page.wait_for_selector(".item-row")
    window.press("o")
    window.sees(".history", "tagged it")
    text = window.page.locator("dialog .quote").inner_text()
    window.button("Correct its tags").click()
    expect(window.page.locator("#item")).to_have_text(text)
    window.choose("Find or add a tag", "corrected")
    window.button("Save").click()
    window.says(re.compile("^Saved: .*corrected"))
    assert "corrected" in learnt(example)[0]["y"]


# ---------------------------------------------------------------------- tags
def names(client: Any) -> set[str]:
    return {entry["tag"] for entry in client.get("/v1/tags").json()["tags"]}


def test_a_tag_is_renamed_described_and_merged_by_mouse(watch, example):
    window = watch(example, "tags")
    page = window.page
    window.button("Open bike").click()
    page.get_by_label("New name").fill("bicycle")
    window.button("Rename").click()
    window.says("bike is now bicycle.")
    assert "bicycle" in names(example)
    page.locator("#toast").get_by_role("button", name="Undo").click()
    window.says("Undone.")
    assert "bike" in names(example)
    window.button("Open garden").click()
    page.get_by_label("Description").fill("plants, weeds, hedges")
    window.button("Save the description").click()
    window.says("garden has a new description.")
    abouts = {tag["tag"]: tag["about"] for tag in example.get("/v1/tags").json()["tags"]}
    assert abouts["garden"] == "plants, weeds, hedges"
    window.choose("Into which tag", "travel")
    window.sees(".preview", "All items of garden get travel instead")
    window.button("Merge garden into travel").click()
    window.says("garden is part of travel now.")
    assert "garden" not in names(example)


def test_a_tag_is_declared_found_and_removed_by_keys(watch, example):
    window = watch(example, "tags")
    window.page.wait_for_selector("tbody tr")
    window.press("n")
    window.page.wait_for_selector("#ask")
    window.type("weather")
    window.press("Tab")
    window.type("rain, sun, wind")
    window.press("Enter")
    window.says("weather is known now.")
    assert "weather" in names(example)
    window.press("/")
    window.type("weath")
    window.press("Escape")
    expect(window.page.locator("tbody tr")).to_have_count(1)
    window.press("Enter")
    window.button("Remove the tag").focus()
    window.press("Enter")
    window.page.wait_for_selector("#ask")
    window.press("Enter")
    window.says("weather is removed.")
    assert "weather" not in names(example)


def test_a_tag_is_applied_by_itself_if_that_is_promised(watch, example):
    window = watch(example, "tags")
    page = window.page
    page.get_by_label("What may be done with bike").select_option("auto")
    window.says("bike: auto")
    kept = {one["tag"]: one for one in example.get("/v1/promises").json()["promises"]}
    assert (kept["bike"]["mode"], kept["bike"]["promise"]) == ("auto", 0.95)
    page.get_by_label("Promised precision of bike").select_option("0.9")
    window.says("bike: auto")
    window.press("g", "p")
    window.sees("tbody", "90 %")
    window.press("g", "g")
    page.get_by_label("What may be done with bike").select_option("never")
    window.says("bike: never")
    page.locator("#toast").get_by_role("button", name="Undo").click()
    window.says("Undone.")
    kept = {one["tag"]: one for one in example.get("/v1/promises").json()["promises"]}
    assert kept["bike"]["mode"] == "auto"


def test_tags_exclude_each_other(watch, example):
    window = watch(example, "tags")
    window.button("Open bike").click()
    window.choose("Never together with", "garden")
    window.says("bike and garden exclude each other now.")
    assert example.get("/v1/exclusive").json()["groups"] == [["bike", "garden"]]
    window.button("Allow together").click()
    window.says("bike may stand beside the others again.")
    assert example.get("/v1/exclusive").json()["groups"] == []


# ---------------------------------------------------------------------- progress
def test_progress_follows_what_is_learnt(watch, example):
    window = watch(example, "progress")
    told = example.get("/v1/progress").json()
    window.sees(".figure strong", f"{told['micro_f1']:.2f}")
    assert window.page.get_by_role("img", name="Micro-F1 over time").count() == 1
    window.sees(".bars", "156")
    example.post("/v1/learn", json={"items": [{"id": "a", "text": "a new one", "y": ["bike"]}]})
    window.sees(".figures-row", "157")  # nobody has touched the page
    window.sees(".bars", "157")


# ---------------------------------------------------------------------- data
ROWS = [
    ("p1", "A tent for two in the rain", "travel;garden"),
    ("p2", "Soup with, a comma", "kitchen"),
]


def table() -> bytes:
    out = io.StringIO()
    csv.writer(out).writerows([("key", "title", "topics"), *ROWS])
    return out.getvalue().encode()


def drop(page: Any, name: str, content: bytes) -> None:
    """Drop a file onto the page, as a mouse does."""
    transfer = page.evaluate_handle(
        """([name, bytes]) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([new Uint8Array(bytes)], name));
            return transfer;
        }""",
        [name, [*content]],
    )
    page.dispatch_event(".drop", "drop", {"dataTransfer": transfer})


def test_a_dropped_table_is_looked_at_mapped_and_learnt(watch, example):
    window = watch(example, "data")
    page = window.page
    page.wait_for_selector(".drop")
    drop(page, "posts.csv", table())
    window.sees(".preview-table", "A tent for two in the rain")
    page.get_by_label("What key is").select_option("id")
    page.get_by_label("What title is").select_option("text")
    page.get_by_label("What topics is").select_option("tags")
    page.get_by_text("They have their tags").click()
    window.button("Read in").click()
    window.says("2 items of posts.csv are learnt.")
    assert {*stored(example, "p1")["y"]} == {"travel", "garden"}
    assert stored(example, "p2")["text"] == "Soup with, a comma"
    window.sees("main", "2 lines: 2 taken")
    window.button("Another file").click()
    window.sees("tbody", "posts.csv")


def test_lines_are_put_into_the_queue_by_keys(watch, example, tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text(f"first line\n\n  second line  \n{MARKUP}\n", encoding="utf-8")
    window = watch(example, "data")
    page = window.page
    page.on("filechooser", lambda _: None)  # from now on they are caught
    page.wait_for_selector(".drop")
    with page.expect_file_chooser() as chosen:
        window.press("o")
    chosen.value.set_files(file)
    window.button("Read in").focus()
    window.press("Enter")
    window.says("3 items of lines.txt are waiting now.")
    found = example.get("/v1/items?state=waiting&n=100").json()["items"]
    assert {"first line", "second line", MARKUP} <= {item["text"] for item in found}
    assert example.get("/v1/next").json()["n_pool"] == 33


def test_a_workbook_is_read(watch, example, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [("key", "title", "topics"), *ROWS]:
        book.active.append(row)
    book.save(tmp_path / "posts.xlsx")
    window = watch(example, "data")
    window.page.wait_for_selector(".drop")
    drop(window.page, "posts.xlsx", (tmp_path / "posts.xlsx").read_bytes())
    window.page.get_by_label("What title is").select_option("text")
    window.page.get_by_label("What key is").select_option("id")
    window.page.get_by_text("People tag them one by one").click()
    window.button("Read in").click()
    window.says("2 items of posts.xlsx are waiting now.")
    assert stored(example, "p2")["state"] == "waiting"


def test_pasted_lines_are_put_in_and_taken_out_again(watch, example):
    window = watch(example, "data")
    window.page.get_by_label("One item on each line").fill(f"one line\n\n  another \n{MARKUP}\n")
    window.button("Put them in").click()
    window.says("3 lines are waiting now.")
    found = example.get("/v1/items?state=waiting&n=100").json()["items"]
    assert {"one line", "another", MARKUP} <= {item["text"] for item in found}
    assert example.get("/v1/next").json()["n_pool"] == 33
    window.press("Escape", "u")
    window.says("Undone.")
    assert example.get("/v1/next").json()["n_pool"] == 30


def test_everything_is_downloaded(watch, example):
    window = watch(example, "data")
    window.page.get_by_label("Format").select_option("csv")
    with window.page.expect_download() as started:
        window.button("Download").click()
    rows = [*csv.DictReader(io.StringIO(started.value.path().read_text(encoding="utf-8")))]
    assert len(rows) == 156
    assert {row["who"] for row in rows} == {"local"}
    window.page.get_by_label("Format").select_option("jsonl")
    window.page.locator("h1").click()
    with window.page.expect_download() as started:
        window.press("e")
    lines = started.value.path().read_text(encoding="utf-8").splitlines()
    assert len(lines) == 156
    assert json.loads(lines[0])["when"]


# ---------------------------------------------------------------------- people
def test_the_first_token_is_made_and_another_one_revoked(watch, tmp_path):
    with serving(tmp_path) as client:
        window = watch(client, "people")
        page = window.page
        window.button("New token").click()
        page.get_by_label("Name").fill("anna")
        window.button("Make the token").click()
        secret = page.locator(".secret").inner_text().strip()
        window.button("Close").last.click()
        window.sees(".me", "anna")
        client.headers["Authorization"] = f"Bearer {secret}"
        page.wait_for_selector("tbody tr")
        window.press("n")
        page.wait_for_selector("#ask")
        window.type("ben")
        window.press("Enter")
        page.wait_for_selector(".secret")
        window.press("Escape")
        tokens = client.get("/v1/tokens").json()["tokens"]
        assert {one["name"]: one["role"] for one in tokens} == {"anna": "admin", "ben": "write"}
        window.button("Revoke the token of ben").click()
        page.locator("#ask").get_by_role("button", name="Revoke").click()
        window.says("The token of ben is revoked.")
        assert [one["name"] for one in client.get("/v1/tokens").json()["tokens"]] == ["anna"]


def test_roles_decide_what_is_shown(watch, tmp_path):
    tokens = Tokens(tmp_path / "tokens.json")
    secrets = {role: tokens.add(role, role) for role in ("read", "write", "admin")}
    with serving(tmp_path, is_open=False) as client:
        client.headers["Authorization"] = f"Bearer {secrets['admin']}"
        body = {"items": [{"id": "1", "text": "one thing", "y": ["a"]}]}
        assert client.post("/v1/learn", json=body).status_code == 200
        client.post("/v1/pool", json={"items": [{"id": "2", "text": "two things"}]})
        shown = {}
        for role, secret in secrets.items():
            window = watch(client, token=secret)
            window.open("people")
            window.sees(".me", role)
            tokens_shown = window.button("New token").count()
            window.open("data")
            window.page.wait_for_selector("#export")
            files_shown = window.page.locator(".drop").count()
            shown[role] = (files_shown, tokens_shown)
        assert shown == {"read": (0, 0), "write": (1, 0), "admin": (1, 1)}
        window = watch(client, token=secrets["read"])
        window.sees(".empty, .item", re.compile("."))
        expect(window.button("Save")).to_have_count(window.page.locator(".item").count())
        for save in window.button("Save").all():
            expect(save).to_be_disabled()


def test_a_token_is_asked_for_and_kept_for_the_session(watch, tmp_path):
    secret = Tokens(tmp_path / "tokens.json").add("anna", "admin")
    with serving(tmp_path, is_open=False) as client:
        window = watch(client)
        window.page.get_by_role("textbox", name="Token").fill("tgs_wrong")
        window.press("Enter")
        expect(window.page.get_by_role("textbox", name="Token")).to_have_value("")  # it asks again
        window.page.get_by_role("textbox", name="Token").fill(secret)
        window.press("Enter")
        window.sees(".foot .who", "anna")
        window.page.reload()
        window.sees(".foot .who", "anna")


# ---------------------------------------------------------------------- the whole page
def test_each_view_has_an_address_and_a_key(watch, example):
    window = watch(example)
    for view, key in zip(VIEWS, "trigpde", strict=True):
        window.press("g", key)
        expect(window.page).to_have_url(re.compile(f"#/{view}$"))
        window.page.wait_for_selector(f".view-{view} h1")
    window.page.go_back()
    expect(window.page).to_have_url(re.compile("#/data$"))
    window.page.get_by_role("link", name="Review").click()
    expect(window.page.locator("h1")).to_have_text("Review")
    window.press("?")
    window.sees("dialog", "accept all above the line")
    window.press("Escape")
    expect(window.page.locator("dialog")).to_have_count(0)


def test_a_reload_loses_nothing(watch, example):
    window = watch(example)
    text = window.item()
    window.choose("Find or add a tag", "half done")
    tags = window.ticked()
    window.page.reload()
    expect(window.page.locator("#item")).to_have_text(text)
    assert window.ticked() == tags
    window.page.locator(".bar-row").get_by_role("button", name="Own text").click()
    window.page.fill("#own", "a draft")
    window.open("items")
    window.page.get_by_label("Search items").fill("bike")
    expect(window.page.locator(".item-row").first).to_contain_text(
        re.compile("bike", re.IGNORECASE)
    )
    window.page.reload()
    expect(window.page.get_by_label("Search items")).to_have_value("bike")
    window.open("tag")
    expect(window.page.locator("#own")).to_have_value("a draft")


def test_an_error_stands_until_it_is_closed(watch, example):
    window = watch(example, "tags")
    window.button("Open bike").click()
    window.page.get_by_label("New name").fill("travel")
    window.button("Rename").click()
    error = window.page.locator(".message.bad")
    expect(error).to_contain_text("travel")
    window.press("Escape")  # the panel
    window.press("g", "p")
    window.sees(".bars", "156")
    example.post("/v1/learn", json={"items": [{"id": "a", "text": "a new one", "y": ["bike"]}]})
    window.sees(".bars", "157")
    expect(error).to_be_in_viewport()
    error.get_by_role("button", name="Close").click()
    expect(error).to_have_count(0)


def test_what_others_teach_changes_the_suggestion(watch, example):
    window = watch(example)
    window.press("n")
    window.page.fill("#own", "zebra crossing on the plateau")
    items = [
        {"id": f"z{i}", "text": f"zebra crossing on the plateau {i}", "y": ["animals"]}
        for i in range(3)
    ]
    assert example.post("/v1/learn", json={"items": items}).status_code == 200
    window.sees('.chip[data-tag="animals"]', "animals")


def test_the_colours_are_switched_and_kept(watch, example):
    window = watch(example, "progress", color_scheme="light")

    def back() -> str:
        return str(window.page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = back()
    window.button("Colours of the system").click()  # light
    window.button("Light colours").click()  # dark
    window.button("Dark colours").wait_for()
    expect(window.page.locator("html")).to_have_attribute("data-scheme", "dark")
    dark = back()
    assert dark != light
    window.page.reload()
    window.page.wait_for_selector("h1")
    assert back() == dark


def test_one_stream_is_open(watch, example):
    window = watch(example)
    window.item()
    asked: list[str] = []
    window.page.on("request", lambda request: asked.append(request.url))
    for view in VIEWS:
        window.open(view)
    example.post("/v1/learn", json={"items": [{"id": "a", "text": "a new one", "y": ["bike"]}]})
    window.open("progress")
    window.sees(".figures-row", "157")
    assert [url for url in asked if url.endswith("/v1/events")] == []


def test_it_polls_where_there_is_no_stream(watch, example):
    window = watch(example, "data")
    window.page.route("**/v1/events", lambda route: route.fulfill(status=204))
    window.page.reload()
    window.open("progress")
    window.sees(".figures-row", "156")
    example.post("/v1/learn", json={"items": [{"id": "a", "text": "a new one", "y": ["bike"]}]})
    window.sees(".figures-row", "157")


# ---------------------------------------------------------------------- what is served
SVG = "http://www.w3.org/2000/svg"  # a name, not an address
PAGE = Path(__file__).parents[1] / "src" / "tagstream" / "serve" / "page"


def test_what_is_vendored_is_what_its_package_holds():
    told = json.loads((PAGE / "vendor" / "checksums.json").read_text(encoding="utf-8"))
    files = {path.name for path in (PAGE / "vendor").glob("*.js")}
    assert files == told.keys()
    for name, entry in told.items():
        content = (PAGE / "vendor" / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == entry["sha256"]
    licence = (PAGE / "vendor" / "LICENSE.txt").read_text(encoding="utf-8")
    assert "MIT License" in licence
    assert "Apache License" in licence


def test_our_scripts_ask_nobody_else_and_write_no_markup():
    ours = [path for path in PAGE.rglob("*.*") if path.parent.name != "vendor"]
    assert len(ours) > 15
    for path in ours:
        name, text = path.name, path.read_text(encoding="utf-8").replace(SVG, "")
        assert "http://" not in text, name
        assert "https://" not in text, name
        assert "innerHTML" not in text.replace("dangerouslySetInnerHTML", "innerHTML"), name
        if name.endswith(".html"):
            assert not re.search(r"\sstyle=|\son\w+=", text), name


def test_the_texts_stand_in_one_file():
    """Words that a reader sees come from texts.js: no view has a sentence of its own."""
    for path in (PAGE / "views").glob("*.js"):
        shown = re.findall(r">\s*([A-Z][a-z]+(?: [a-z]+)*)\s*<", path.read_text(encoding="utf-8"))
        assert shown == [], path.name


# ---------------------------------------------------------------------- the reference of the API
def test_the_api_page_lists_every_route(browser, example):
    page = browser.new_page()
    page.goto(f"{example.url}/docs")
    page.wait_for_selector("article")
    listed = page.locator(".path").all_inner_texts()
    paths = example.get("/openapi.json").json()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert len(listed) == len(routes)
    assert {*listed} == routes
    assert "Needs the role admin." in page.locator("article .hint").all_inner_texts()
    page.close()


def test_the_api_page_asks_for_a_token_where_there_are_tokens(browser, tmp_path):
    secret = Tokens(tmp_path / "tokens.json").add("anna", "read")
    with serving(tmp_path, is_open=False) as client:
        page = browser.new_page()
        page.goto(f"{client.url}/docs")
        page.fill("#token", "tgs_wrong")
        page.click("button")
        expect(page.locator("#token")).to_have_value("")  # it asks again
        page.fill("#token", secret)
        page.click("button")
        page.wait_for_selector("article")
        page.close()
