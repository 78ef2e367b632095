"""`rare.py PARTS [STALE] <HISTORY >OTHER`: an EDN history of `seatrial generate list-append` with a key that is used rarely.

After each of PARTS equal parts of 10^7 lines one more client reads the key `rare` and appends to it. The use with the number STALE
reads what the one before it read.
"""

import re
import sys

every, stale = 10_000_000 // int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
shown, index = [], 0
number = re.compile(r":index \d+")


def put(line):
    global index
    sys.stdout.write(number.sub(f":index {index}", line, count=1))
    index += 1


for count, line in enumerate(sys.stdin, 1):
    put(line)
    if count % every == 0:
        use = count // every
        time = re.search(r":time (\d+)", line)[1]
        read = shown[:-1] if use == stale else shown
        for kind, value in (("invoke", "nil"), ("ok", "[" + " ".join(map(str, read)) + "]")):
            mops = f"[[:r :rare {value}] [:append :rare {use}]]"
            put(f"{{:index 0, :time {time}, :process 100000, :type :{kind}, :f :txn, :value {mops}}}\n")
        shown.append(use)
