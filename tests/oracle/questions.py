"""Prints a random world and questions of all kinds about it, as one line of JSON, for those who ask several servers alike.

    questions.py SEED PROJECTS ROUNDS QUESTIONS

Each round has settings of each project, the next events of all, and then questions; of each kind there are QUESTIONS
altogether. Projects are counted from 0 on.
"""

import importlib
import json
import random
import sys

import world
from asking import Settings

KINDS = ["trends", "funnels", "retention", "stickiness", "lifecycle", "paths", "correlation", "sql"]
EVENTS = (150, 600)

seed, projects, rounds, questions = map(int, sys.argv[1:])
pick = random.Random(seed)
modules = {kind: importlib.import_module(kind) for kind in KINDS}
season = pick.choice(world.SEASONS)
worlds = [world.Project(pick, season, pick.randrange(*EVENTS)) for _ in range(projects)]
sent = [
    (at, [own.written(event) for event in batch]) for at, own in enumerate(worlds) for batch in own.batches()
]
# Those of a project stay in their order.
order = [at for at, _ in sent]
pick.shuffle(order)
batches = {at: iter([batch for of, batch in sent if of == at]) for at in range(projects)}
sent = [(at, next(batches[at])) for at in order]


def part(items, number):
    return items[len(items) * number // rounds:len(items) * (number + 1) // rounds]


def asked(kind, settings):
    at = pick.randrange(projects)
    question = modules[kind].Question(pick, worlds[at], settings[at])
    return {
        "project": at, "kind": kind, "node": question.node(),
        # Otherwise the order of what is found may be any.
        "is_ordered": getattr(question, "is_exact", True),
    }


def one(number):
    settings = [Settings(pick) for _ in range(projects)]
    own = [asked(kind, settings) for kind in KINDS for _ in part(range(questions), number)]
    pick.shuffle(own)
    return {"settings": [of.body() for of in settings], "sent": part(sent, number), "questions": own}


print(json.dumps([one(number) for number in range(rounds)]))
