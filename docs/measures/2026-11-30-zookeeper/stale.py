#!/usr/bin/env python3
"""A leader of ZooKeeper that answers a sync before it has executed what a follower has acknowledged.

stale.py FOLLOWER LEADER DEBUG: client ports of a follower and of the leader, and the port at which the leader's Java waits for a
debugger. The debugger holds the leader's thread that is about to queue a commit for the leader itself.
"""
import socket
import struct
import subprocess
import sys
import time


class Session:
    """One session, whose requests are answered in their order."""
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.socket.settimeout(10)
        self.number = 0
        self.send(struct.pack(">iqiq", 0, 0, 600000, 0) + struct.pack(">i", 16) + bytes(16))
        self.receive()

    def send(self, body):
        self.socket.sendall(struct.pack(">i", len(body)) + body)

    def take(self, length):
        data = b""
        while len(data) < length:
            part = self.socket.recv(length - len(data))
            assert part, "the server closed the connection"
            data += part
        return data

    def receive(self):
        return self.take(struct.unpack(">i", self.take(4))[0])

    def call(self, kind, body):
        self.number += 1
        self.send(struct.pack(">ii", self.number, kind) + body)
        reply = self.receive()
        number, zxid, error = struct.unpack(">iqi", reply[:16])
        assert number == self.number and error == 0, (number, error)
        return zxid, reply[16:]

    def create(self, path, data):
        acl = struct.pack(">ii", 1, 31) + text("world") + text("anyone")
        return self.call(1, text(path) + text(data) + acl + struct.pack(">i", 0))[0]

    def set(self, path, data):
        return self.call(5, text(path) + text(data) + struct.pack(">i", -1))[0]

    def get(self, path):
        zxid, body = self.call(4, text(path) + b"\0")
        length, = struct.unpack(">i", body[:4])
        return body[4:4 + length].decode()

    def sync(self, path):
        return self.call(9, text(path))[0]


def text(value):
    return struct.pack(">i", len(value)) + value.encode()


def main():
    follower, leader = Session(int(sys.argv[1])), Session(int(sys.argv[2]))
    path = f"/stale-{time.time_ns()}"
    follower.create(path, "old")
    leader.sync("/")
    print("leader:   sync, get:", leader.get(path))
    debugger = subprocess.Popen(["jdb", "-attach", sys.argv[3]], stdin=subprocess.PIPE, text=True,
                                stdout=subprocess.DEVNULL)

    def tell(words):
        debugger.stdin.write(words + "\n")
        debugger.stdin.flush()
        time.sleep(3)

    tell("stop thread in org.apache.zookeeper.server.quorum.CommitProcessor.commit")
    print("follower: set new, acknowledged at zxid %#x" % follower.set(path, "new"))
    leader.sync("/")
    print("leader:   sync, get:", leader.get(path))
    tell("clear org.apache.zookeeper.server.quorum.CommitProcessor.commit")
    tell("resume")
    tell("quit")
    leader.sync("/")
    print("leader, its thread running again: sync, get:", leader.get(path))


main()
