"""`late.py HISTORY ONE ALL`: late reads for an EDN history of `seatrial generate list-append`.

ONE gets a read of one early key, ALL reads of all keys whose committed appends were read, but for the last sixty; each shows the list as it is in
the end. Both are to be appended to the history.
"""

import re
import sys

history, one, all_keys = sys.argv[1:]
longest, appended, count = {}, {}, 0
reads, appends = re.compile(r"\[:r (\d+) \[([\d ]*)\]\]"), re.compile(r"\[:append (\d+) (\d+)\]")
for line in open(history):
    count += 1
    if ":type :ok" not in line:
        continue
    for found in reads.finditer(line):
        key, elements = int(found[1]), found[2]
        if len(elements) > len(longest.get(key, "")):
            longest[key] = elements
    for found in appends.finditer(line):
        appended.setdefault(int(found[1]), []).append(found[2])
keys = [key for key in sorted(appended)[:-60] if set(appended[key]) <= set(longest.get(key, "").split())]


def write(path, keys):
    with open(path, "w") as out:
        for number, key in enumerate(keys):
            for offset, kind, value in ((0, "invoke", "nil"), (1, "ok", f"[{longest[key]}]")):
                index = count + 2 * number + offset
                head = f":index {index}, :time 99999999999999, :process 100000, :type :{kind}"
                print(f"{{{head}, :f :txn, :value [[:r {key} {value}]]}}", file=out)


print(f"{count} operations, {len(keys)} keys to read late")
write(one, keys[5:6])
write(all_keys, keys)
