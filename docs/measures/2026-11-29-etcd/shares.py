"""Shares of a run's processor time: `perf script -F comm,ip,sym | shares.py`. A sample is the client's if its stack has a client's
request or the system calls `send` and `recv`, which nothing else makes."""
import sys

counts, stack = {"client": 0, "waiting for events": 0, "other threads": 0, "the rest": 0}, []
comm = ""
def end():
    global stack
    if stack:
        text = "\n".join(stack)
        if any(sign in text for sign in ("Client>::invoke", "__send", "__libc_recv")):
            what = "client"
        elif "epoll_wait" in text:
            what = "waiting for events"
        elif not comm.startswith("seatrial"):
            what = "other threads"
        else:
            what = "the rest"
        counts[what] += 1
    stack = []
for line in sys.stdin:
    if not line.strip():
        end()
    elif line[0].isspace():
        stack.append(line)
    else:
        end()
        comm = line.strip()
end()
total = sum(counts.values())
for what, count in counts.items():
    print(f"{what}: {100 * count / total:.1f} %")
print("samples:", total)
