#!/usr/bin/env python3
"""Histories for the measures of formats, from a seed: a store with snapshots, one commit after another.

generate.py plume EVENTS OUT        family W of the scoreboard: 50 sessions, 1 to 15 operations, half of them reads
generate.py timekiller N OUT        family T: N transactions, 50 sessions, N/10 keys, overlapping snapshots
generate.py timekiller-wrong N OUT  the same with one read at 90 % that is older than its snapshot
"""
import random
import sys


def plume(events, out):
    rng = random.Random(1)
    keys = max(events // 50, 1000)
    state, written, done, transaction = {}, 0, 0, 0
    while done < events:
        session = rng.randrange(50)
        lines = []
        for _ in range(rng.randint(1, 15)):
            key = rng.randrange(keys)
            if rng.random() < 0.5:
                lines.append(f"r({key},{state.get(key, 0)},{session},{transaction})\n")
            else:
                written += 1
                state[key] = written
                lines.append(f"w({key},{written},{session},{transaction})\n")
        out.write("".join(lines))
        done += len(lines)
        transaction += 1


def timekiller(count, out, wrong):
    rng = random.Random(2)
    keys = max(count // 10, 1)
    versions = {}  # key: [(commit, value)], the newest last
    free = [0] * 50  # when each session's last transaction was committed
    out.write("[")
    now = 0
    for number in range(count):
        session = rng.randrange(50)
        # Every commit takes the next even tick; a snapshot is some ticks older, but not older than the session's last.
        now += 2
        start = max(free[session], now - 1 - 2 * rng.randrange(20))
        free[session] = now
        own, operations = {}, []
        for _ in range(rng.randint(1, 15)):
            key = rng.randrange(keys)
            history = versions.get(key, [])
            newer = history and history[-1][0] > start
            if rng.random() < 0.5 or newer:
                value = own.get(key)
                if value is None:
                    seen = [value for commit, value in history if commit <= start]
                    value = seen[-1] if seen else None
                    if wrong and number * 10 > count * 9 and len(seen) > 1:
                        value, wrong = seen[-2], False
                own[key] = value if value is not None else own.get(key)
                text = "null" if value is None else value
                operations.append(f'{{"t":"r","k":{key},"v":{text}}}')
            else:
                value = number * 16 + len(operations) + 1
                own[key] = value
                operations.append(f'{{"t":"w","k":{key},"v":{value}}}')
                # What no snapshot can be of any more goes, but for the newest of it.
                while len(history) > 1 and history[1][0] < now - 100:
                    history = history[1:]
                if history and history[-1][0] == now:
                    history = history[:-1]
                versions[key] = history + [(now, value)]
        comma = "," if number else ""
        out.write(
            f'{comma}\n{{"tid":{number},"sid":{session},"sts":{{"p":{start},"l":0}},"cts":{{"p":{now},"l":0}},'
            f'"ops":[{",".join(operations)}]}}'
        )
    out.write("\n]\n")


with open(sys.argv[3], "w") as file:
    if sys.argv[1] == "plume":
        plume(int(sys.argv[2]), file)
    else:
        timekiller(int(sys.argv[2]), file, sys.argv[1] == "timekiller-wrong")
