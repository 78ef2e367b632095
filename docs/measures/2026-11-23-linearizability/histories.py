"""Histories of one object by concurrent clients, as EDN: histories.py KIND OPERATIONS CLIENTS SEED [wrong].

KIND: cas (reads, writes and compare-and-sets of five values), register (reads and writes of five values), kv (appends
and gets of one key), fifo-queue, stack, priority-queue, bag (each element added once). KIND:N, as in register:20 or
fifo-queue:3, draws values from N instead. Operations take effect between invocation and completion; with `wrong`, one
result near the end (90 %) is changed.
"""
import collections
import heapq
import random
import sys

kind, count, clients, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
wrong = len(sys.argv) > 5
kind, _, values = kind.partition(":")
values = int(values or 0)
rng = random.Random(seed)
ADD, TAKE = {
    "fifo-queue": ("enqueue", "dequeue"),
    "stack": ("push", "pop"),
    "priority-queue": ("insert", "poll"),
    "bag": ("add", "take"),
}.get(kind, (None, None))
elements, value, text, added = [], None, "", 0
if kind in ("fifo-queue", "bag"):
    elements = collections.deque()


def begin(process):
    """Function and argument of the next operation."""
    global added
    if kind in ("cas", "register"):
        few = values or 5
        f = rng.choice(["read", "write", "cas"] if kind == "cas" else ["read", "write"])
        argument = {"read": None, "write": rng.randrange(few), "cas": (rng.randrange(few), rng.randrange(few))}[f]
        return f, argument
    if kind == "kv":
        f = rng.choice(["get", "append"])
        added += 1
        return f, None if f == "get" else f"x {process} {added} y"
    if rng.random() < 0.5:
        added += 1
        if values:
            return ADD, 1 + rng.randrange(values)
        # Priorities in no order.
        return ADD, added if kind != "priority-queue" else added * 7919 % 1_000_003
    return TAKE, None


def effect(f, argument):
    """Type and value of the completion."""
    global value, text
    if f == "read":
        return "ok", value
    if f == "write":
        value = argument
    elif f == "cas":
        if value != argument[0]:
            return "fail", argument
        value = argument[1]
    elif f == "get":
        return "ok", text
    elif f == "append":
        text += argument
    elif f == ADD:
        if kind == "priority-queue":
            heapq.heappush(elements, argument)
        else:
            elements.append(argument)
    elif not elements:
        return "ok", None
    elif kind == "stack":
        return "ok", elements.pop()
    elif kind == "priority-queue":
        return "ok", heapq.heappop(elements)
    else:
        return "ok", elements.popleft()
    return "ok", argument


def edn(one):
    if one is None:
        return "nil"
    if isinstance(one, tuple):
        return "[%d %d]" % one
    return '"%s"' % one if isinstance(one, str) else str(one)


def line(process, type_, f, one):
    if kind == "kv":
        return '{:process %d, :type :%s, :f :%s, :key "0", :value %s}' % (process, type_, f, edn(one))
    one = "[0 %s]" % edn(one) if kind in ("cas", "register") else edn(one)
    return "{:process %d :type :%s :f :%s :value %s}" % (process, type_, f, one)


free, running, begun, done, out = list(range(clients)), {}, 0, 0, []
while done < count:
    if free and begun < count and (not running or rng.random() < 0.4):
        process = free.pop(rng.randrange(len(free)))
        f, argument = begin(process)
        running[process] = [f, argument, None]
        begun += 1
        out.append(line(process, "invoke", f, argument))
        continue
    process = rng.choice(list(running))
    one = running[process]
    if one[2] is None:
        one[2] = effect(one[0], one[1])
        continue
    del running[process]
    free.append(process)
    done += 1
    type_, result = one[2]
    if wrong and done >= count * 0.9 and type_ == "ok" and result is not None and one[1] is None:
        if kind == "kv":
            place = rng.choice([at for at, letter in enumerate(result) if letter.isdigit()])
            result = result[:place] + str((int(result[place]) + 1) % 10) + result[place + 1:]
        else:
            few = values or 5
            result = (result + 1) % few if kind in ("cas", "register") else result % values + 1 if values else result + 1
        wrong = False
    out.append(line(process, type_, one[0], result))
    if len(out) > 100_000:
        print("\n".join(out))
        out = []
print("\n".join(out))
