#!/usr/bin/env python3
"""Nodes for `seatrial maelstrom test`, right ones and wrong ones, without any library.

    seatrial maelstrom test -w broadcast --bin examples/maelstrom/node.py -- broadcast

The argument is what the node does: a workload, or a workload with a fault (`lin-kv-stale`).
"""
import json
import sys
import threading
import time

KEY_DOES_NOT_EXIST, PRECONDITION_FAILED, TXN_CONFLICT = 20, 22, 30


class Failure(Exception):
    """An error that is sent as the reply."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code, self.text = code, text


class Node:
    """Messages in and out. Each request runs in a thread of its own, so that it may wait for replies of others."""

    def __init__(self):
        self.id, self.ids = None, []
        self.lock, self.out = threading.Lock(), threading.Lock()
        self.next, self.waiting = 0, {}

    def send(self, dest, body):
        line = json.dumps({"src": self.id, "dest": dest, "body": body})
        with self.out:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    def reply(self, request, body):
        self.send(request["src"], {**body, "in_reply_to": request["body"]["msg_id"]})

    def call(self, dest, body, timeout=1.0):
        """Sends a request and returns the body of its reply; an error or no reply is a Failure."""
        with self.lock:
            self.next += 1
            number = self.next
            slot = self.waiting[number] = [threading.Event(), None]
        self.send(dest, {**body, "msg_id": number})
        arrived = slot[0].wait(timeout)
        with self.lock:
            self.waiting.pop(number, None)
        if not arrived:
            raise Failure(0, f"{dest} did not answer {body['type']}")
        if slot[1]["type"] == "error":
            raise Failure(slot[1]["code"], slot[1].get("text", ""))
        return slot[1]

    def run(self, behaviour):
        for line in sys.stdin:
            message = json.loads(line)
            body = message["body"]
            if "in_reply_to" in body:
                with self.lock:
                    slot = self.waiting.get(body["in_reply_to"])
                if slot:
                    slot[1] = body
                    slot[0].set()
            elif body["type"] == "init":
                self.id, self.ids = body["node_id"], body["node_ids"]
                behaviour.start(self)
                self.reply(message, {"type": "init_ok"})
            elif self.id is not None:  # others may gossip before this node knows its name
                threading.Thread(target=self.handle, args=(behaviour, message), daemon=True).start()

    def handle(self, behaviour, message):
        try:
            answer = getattr(behaviour, message["body"]["type"].replace("-", "_"))(self, message["src"], message["body"])
        except Failure as failure:
            answer = {"type": "error", "code": failure.code, "text": failure.text}
        if answer is not None:
            self.reply(message, answer)


class Behaviour:
    """What all behaviours have."""

    def start(self, node):
        """Called when the node knows its name."""


class Echo(Behaviour):
    def echo(self, node, src, body):
        return {"type": "echo_ok", "echo": body["echo"]}


class WrongEcho(Behaviour):
    def echo(self, node, src, body):
        return {"type": "echo_ok", "echo": str(body["echo"]).upper()}


class Twice(Behaviour):
    """Answers twice."""

    def echo(self, node, src, body):
        node.send(src, {"type": "echo_ok", "echo": body["echo"], "in_reply_to": body["msg_id"]})
        return {"type": "echo_ok", "echo": body["echo"]}


class Garbage(Behaviour):
    """Prints what is no JSON."""

    def echo(self, node, src, body):
        with node.out:
            print("debug: echo", flush=True)
        return {"type": "echo_ok", "echo": body["echo"]}


class WrongType(Behaviour):
    """Every second reply has a wrong type."""

    count = 0

    def echo(self, node, src, body):
        self.count += 1
        return {"type": "echoed" if self.count % 2 else "echo_ok", "echo": body["echo"]}


class UniqueIds(Behaviour):
    count = 0

    def generate(self, node, src, body):
        with node.lock:
            self.count += 1
            return {"type": "generate_ok", "id": f"{node.id}-{self.count}"}


class WrongIds(Behaviour):
    """Every node counts for itself."""

    count = 0

    def generate(self, node, src, body):
        with node.lock:
            self.count += 1
            return {"type": "generate_ok", "id": self.count}


class Broadcast(Behaviour):
    """Gossips all it knows to its neighbours, now and then, until they have acknowledged it."""

    def __init__(self):
        self.messages, self.neighbours, self.acknowledged = set(), [], {}

    def start(self, node):
        threading.Thread(target=self.gossip, args=(node,), daemon=True).start()

    def topology(self, node, src, body):
        self.neighbours = body["topology"][node.id]
        return {"type": "topology_ok"}

    def broadcast(self, node, src, body):
        with node.lock:
            self.messages.add(body["message"])
        return {"type": "broadcast_ok"}

    def read(self, node, src, body):
        with node.lock:
            return {"type": "read_ok", "messages": sorted(self.messages)}

    def gossip(self, node):
        while True:
            time.sleep(0.1)
            for neighbour in self.neighbours:
                with node.lock:
                    fresh = self.messages - self.acknowledged.get(neighbour, set())
                if fresh:
                    node.send(neighbour, {"type": "share", "messages": sorted(fresh)})

    def share(self, node, src, body):
        with node.lock:
            self.messages.update(body["messages"])
            self.acknowledged.setdefault(src, set()).update(body["messages"])
        node.send(src, {"type": "shared", "messages": body["messages"]})

    def shared(self, node, src, body):
        with node.lock:
            self.acknowledged.setdefault(src, set()).update(body["messages"])


class BroadcastOnce(Broadcast):
    """Wrong under faults: sends each message once, and does not wait for an acknowledgement."""

    def start(self, node):
        pass

    def broadcast(self, node, src, body):
        with node.lock:
            is_new = body["message"] not in self.messages
            self.messages.add(body["message"])
        for neighbour in self.neighbours if is_new else []:
            if neighbour != src:
                node.send(neighbour, {"type": "broadcast", "message": body["message"]})
        return {"type": "broadcast_ok"} if "msg_id" in body else None


class GSet(Behaviour):
    """A grow-only set, merged with all others now and then."""

    def __init__(self):
        self.elements = set()

    def start(self, node):
        threading.Thread(target=self.gossip, args=(node,), daemon=True).start()

    def add(self, node, src, body):
        with node.lock:
            self.elements.add(body["element"])
        return {"type": "add_ok"}

    def read(self, node, src, body):
        with node.lock:
            return {"type": "read_ok", "value": sorted(self.elements)}

    def gossip(self, node):
        while True:
            time.sleep(0.3)
            with node.lock:
                elements = sorted(self.elements)
            for other in node.ids:
                if other != node.id:
                    node.send(other, {"type": "merge", "elements": elements})

    def merge(self, node, src, body):
        with node.lock:
            self.elements.update(body["elements"])


class Counter(Behaviour):
    """A PN-counter: for each node what it added and what it took away, merged by the larger."""

    def __init__(self):
        self.sums = {}

    def start(self, node):
        self.sums = {other: [0, 0] for other in node.ids}
        threading.Thread(target=self.gossip, args=(node,), daemon=True).start()

    def add(self, node, src, body):
        with node.lock:
            self.sums[node.id][0 if body["delta"] >= 0 else 1] += abs(body["delta"])
        return {"type": "add_ok"}

    def read(self, node, src, body):
        with node.lock:
            return {"type": "read_ok", "value": sum(plus - minus for plus, minus in self.sums.values())}

    def gossip(self, node):
        while True:
            time.sleep(0.3)
            with node.lock:
                sums = {name: list(pair) for name, pair in self.sums.items()}
            for other in node.ids:
                if other != node.id:
                    node.send(other, {"type": "merge", "sums": sums})

    def merge(self, node, src, body):
        with node.lock:
            for name, pair in body["sums"].items():
                self.sums[name] = [max(pair[0], self.sums[name][0]), max(pair[1], self.sums[name][1])]


class CounterOfOne(Counter):
    """Wrong: the larger sum wins, so that additions at two nodes become one."""

    def merge(self, node, src, body):
        with node.lock:
            theirs = sum(plus - minus for plus, minus in body["sums"].values())
            if theirs > sum(plus - minus for plus, minus in self.sums.values()):
                self.sums = body["sums"]


class Registers(Behaviour):
    """Registers in a service."""

    service = "lin-kv"

    def read(self, node, src, body):
        return {"type": "read_ok", "value": node.call(self.service, {"type": "read", "key": body["key"]})["value"]}

    def write(self, node, src, body):
        node.call(self.service, {"type": "write", "key": body["key"], "value": body["value"]})
        return {"type": "write_ok"}

    def cas(self, node, src, body):
        node.call(self.service, {name: body[name] for name in ("type", "key", "from", "to")})
        return {"type": "cas_ok"}


class StaleRegisters(Registers):
    """Wrong: the service is not linearizable."""

    service = "lww-kv"


class Transactions(Behaviour):
    """All data is one value of a service, changed by compare-and-set."""

    service = "lin-kv"

    def txn(self, node, src, body):
        try:
            old = node.call(self.service, {"type": "read", "key": "root"})["value"]
        except Failure as failure:
            if failure.code != KEY_DOES_NOT_EXIST:
                raise
            old = {}
        new, done = dict(old), []
        for function, key, value in body["txn"]:
            name = str(key)
            if function == "append":
                new[name] = new.get(name, []) + [value]
            elif function == "w":
                new[name] = value
            else:
                value = new.get(name)
            done.append([function, key, value])
        request = {"type": "cas", "key": "root", "from": old, "to": new, "create_if_not_exists": True}
        try:
            node.call(self.service, request)
        except Failure as failure:
            if failure.code == PRECONDITION_FAILED:
                raise Failure(TXN_CONFLICT, "the root has changed") from failure
            raise
        return {"type": "txn_ok", "txn": done}


class DirtyTransactions(Transactions):
    """Wrong: writes the new root whatever the old one has become."""

    def txn(self, node, src, body):
        try:
            old = node.call(self.service, {"type": "read", "key": "root"})["value"]
        except Failure:
            old = {}
        new, done = dict(old), []
        for function, key, value in body["txn"]:
            name = str(key)
            if function == "append":
                new[name] = new.get(name, []) + [value]
            elif function == "w":
                new[name] = value
            else:
                value = new.get(name)
            done.append([function, key, value])
        node.call(self.service, {"type": "write", "key": "root", "value": new})
        return {"type": "txn_ok", "txn": done}


class Kafka(Behaviour):
    """Each log is a list in a service, changed by compare-and-set; so are the committed offsets."""

    def change(self, node, key, change):
        """Applies `change` to the value under a key until no one else has changed it meanwhile; returns the new value."""
        while True:
            try:
                old = node.call("lin-kv", {"type": "read", "key": key})["value"]
            except Failure as failure:
                if failure.code != KEY_DOES_NOT_EXIST:
                    raise
                old = None
            new = change(old)
            if new == old:
                return new
            request = {"type": "cas", "key": key, "from": old, "to": new, "create_if_not_exists": True}
            try:
                node.call("lin-kv", request)
                return new
            except Failure as failure:
                if failure.code != PRECONDITION_FAILED:
                    raise

    def log(self, node, key):
        try:
            return node.call("lin-kv", {"type": "read", "key": f"log {key}"})["value"]
        except Failure as failure:
            if failure.code != KEY_DOES_NOT_EXIST:
                raise
            return []

    def send(self, node, src, body):
        log = self.change(node, f"log {body['key']}", lambda old: (old or []) + [body["msg"]])
        return {"type": "send_ok", "offset": len(log) - 1}

    def poll(self, node, src, body):
        messages = {}
        for key, offset in body["offsets"].items():
            log = self.log(node, key)
            messages[key] = [[at, log[at]] for at in range(offset, min(len(log), offset + 16))]
        return {"type": "poll_ok", "msgs": messages}

    def commit_offsets(self, node, src, body):
        for key, offset in body["offsets"].items():
            self.change(node, f"offset {key}", lambda old: max(old or 0, offset))
        return {"type": "commit_offsets_ok"}

    def list_committed_offsets(self, node, src, body):
        offsets = {}
        for key in body["keys"]:
            try:
                offsets[key] = node.call("lin-kv", {"type": "read", "key": f"offset {key}"})["value"]
            except Failure as failure:
                if failure.code != KEY_DOES_NOT_EXIST:
                    raise
        return {"type": "list_committed_offsets_ok", "offsets": offsets}


class LossyKafka(Kafka):
    """Wrong: two sends at the same time may write over each other."""

    def change(self, node, key, change):
        try:
            old = node.call("lin-kv", {"type": "read", "key": key})["value"]
        except Failure:
            old = None
        new = change(old)
        time.sleep(0.02)  # which another node uses
        node.call("lin-kv", {"type": "write", "key": key, "value": new})
        return new


BEHAVIOURS = {
    "echo": Echo,
    "echo-wrong": WrongEcho,
    "echo-twice": Twice,
    "echo-garbage": Garbage,
    "echo-type": WrongType,
    "unique-ids": UniqueIds,
    "unique-ids-wrong": WrongIds,
    "broadcast": Broadcast,
    "broadcast-once": BroadcastOnce,
    "g-set": GSet,
    "counter": Counter,
    "counter-wrong": CounterOfOne,
    "lin-kv": Registers,
    "lin-kv-stale": StaleRegisters,
    "txn": Transactions,
    "txn-dirty": DirtyTransactions,
    "kafka": Kafka,
    "kafka-lossy": LossyKafka,
}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in BEHAVIOURS:
        sys.exit(f"usage: node.py {'|'.join(BEHAVIOURS)}")
    Node().run(BEHAVIOURS[sys.argv[1]]())
