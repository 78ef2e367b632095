#!/usr/bin/env python3
"""component.py KIND TRANSACTIONS: a history of lists, as JSON lines, most of whose transactions are one component.

stale: reads lack up to 60 of the last appends; overwrites: appends arrive in another order than they were made;
skew: snapshot isolation, every client appends to a key of its own and reads two others.
"""
import json
import random
import sys

kind, count = sys.argv[1], int(sys.argv[2])
rng = random.Random(7)
CLIENTS, KEYS, index = 50, 10, 0


def emit(type_, process, value):
    global index
    op = {"index": index, "type": type_, "process": process, "f": "txn", "value": value}
    sys.stdout.write(json.dumps(op, separators=(",", ":")) + "\n")
    index += 1


def batches():
    lists, live, following, counts = {}, list(range(KEYS)), KEYS, {}
    for _ in range(0, count, CLIENTS):
        transactions = []
        for _ in range(CLIENTS):
            mops = []
            for _ in range(3):
                place = rng.randrange(KEYS)
                key = live[place]
                if kind == "overwrites" or rng.random() < 0.5:
                    counts[key] = counts.get(key, 0) + 1
                    mops.append(["append", key, counts[key]])
                    if counts[key] >= 100:
                        live[place] = following
                        following += 1
                else:
                    mops.append(["r", key, None])
            transactions.append(mops)
        for process in range(CLIENTS):
            emit("invoke", process, transactions[process])
        for process in rng.sample(range(CLIENTS), CLIENTS):
            for mop in transactions[process]:
                known = lists.setdefault(mop[1], [])
                if mop[0] == "r":
                    mop[2] = known[: max(0, len(known) - rng.randrange(60))]
                elif kind == "overwrites":
                    known.insert(max(0, len(known) - rng.randrange(30)), mop[2])
                else:
                    known.append(mop[2])
            emit("ok", process, transactions[process])
    if kind == "overwrites":
        for key, known in lists.items():
            emit("invoke", 0, [["r", key, None]])
            emit("ok", 0, [["r", key, known]])


def skew():
    live, versions, following, version, done, running = [], {}, CLIENTS, 0, 0, {}
    for key in range(CLIENTS):
        live.append(key)
        versions[key] = []
    while done < count:
        process = rng.randrange(CLIENTS)
        if process not in running:
            own = live[process]
            keys = {live[rng.randrange(CLIENTS)] for _ in range(2)} - {own}
            running[process] = (version, sorted(keys), own)
            reads = [["r", key, None] for key in sorted(keys)]
            emit("invoke", process, reads + [["append", own, len(versions[own]) + 1]])
            continue
        snapshot, keys, own = running.pop(process)
        version += 1
        seen = lambda key: [at + 1 for at, one in enumerate(versions[key]) if one <= snapshot]
        reads = [["r", key, seen(key)] for key in keys]
        versions[own].append(version)
        emit("ok", process, reads + [["append", own, len(versions[own])]])
        if len(versions[own]) >= 20:
            live[process] = following
            versions[following] = []
            following += 1
        done += 1


skew() if kind == "skew" else batches()
