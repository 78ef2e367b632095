"""`appends.py KEYS PUTS`: a history of a key-value map in EDN, for `check --checker kv-map --keyed`.

Each of KEYS gets seven concurrent appends and a read of an order that a search finds late; one key more gets PUTS puts, one after another.
"""

import sys

keys, puts = int(sys.argv[1]), int(sys.argv[2])
count = 7


def line(process, kind, f, key, value):
    print(f"{{:process {process} :type :{kind} :f :{f} :value [{key} {value}]}}")


texts = [chr(ord("a") + number) * 20 for number in range(count)]
for key in range(keys):
    for kind in ("invoke", "ok"):
        for process, text in enumerate(texts):
            line(process, kind, "append", key, f'"{text}"')
    order = [number * 3 % count for number in range(count)][::-1]
    line(0, "invoke", "get", key, "nil")
    line(0, "ok", "get", key, '"' + "".join(texts[number] for number in order) + '"')
for number in range(puts):
    line(1, "invoke", "put", keys, f'"{number}"')
    line(2, "invoke", "get", keys, "nil")
    line(1, "ok", "put", keys, f'"{number}"')
    line(2, "ok", "get", keys, f'"{number}"')
