"""A helpdesk: tickets come with the teams that handle them; a new team appears on the way."""

import random

import tagstream as ts

WORDS = {
    "network": "wifi router cable signal vpn slow connection",
    "printer": "paper toner jam print scan tray ink",
    "account": "password login locked reset user expired mail",
    "phone": "call headset ring voicemail extension mobile line",
}
rng = random.Random(0)


def ticket(number, teams):
    words = [rng.choice(WORDS[team].split()) for team in teams for _ in range(4)]
    return {"id": number, "text": " ".join(words), "y": teams}


old_teams = ["network", "printer", "account"]
tickets = [ticket(i, rng.sample(old_teams, rng.choice([1, 1, 2]))) for i in range(300)]
tickets.sort(key=lambda one: one["y"])  # as an export has them: the order does not matter

desk = ts.Tagger()
desk.learn(tickets)
desk.refit()
new = ticket("n", ["printer"])
print("a ticket goes to:", desk.suggest(new["text"]).tags)

for i in range(8):  # a team that nobody knew; no setup
    desk.learn(ticket(f"phone {i}", ["phone"]))
best = next(iter(desk.suggest("No ring in my headset, the line is dead").scores))
print("the best team for a headset:", best)

desk.learn({**new, "y": ["printer", "account"]})  # somebody corrects the first ticket
print("after the correction:", sorted(desk.suggest(new).tags))
print(desk)
