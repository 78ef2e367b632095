"""The client protocol of seatrial for Python, in one file without dependencies.

A client is a class with three methods and a call of `run`:

    import seatrial_client as seatrial

    class Client:
        def open(self, node, address, addresses, options, deadline):
            ...            # connect, and make a first round trip; an exception: the worker cannot be opened
        def invoke(self, f, key, value, deadline):
            ...            # returns the value of the completion; raises Fail or Info
        def close(self):
            ...

    seatrial.run(Client)

Each worker has a Client and a thread of its own. `key` is None for operations without a key; `deadline` is a number of
seconds. `raise Fail("...")`: the operation certainly did not take place. `raise Info("...")`, and any other exception: its
outcome is unknown; the worker is then closed and opened again. `Ok(value, node="n2")` adds fields to a completion.

Standard output belongs to the protocol: `print` is redirected to standard error.
"""

import json
import os
import queue
import sys
import threading
import traceback

PROTOCOL = 1


class Fail(Exception):
    """The operation certainly did not take place, and never will."""


class Info(Exception):
    """The outcome of the operation is unknown."""


class Ok:
    """The value of a completion with further fields, such as the node that answered."""

    __slots__ = ("value", "fields")

    def __init__(self, value=None, **fields):
        self.value = value
        self.fields = fields


class _Output:
    """Writes whole lines to the bench, from any thread."""

    def __init__(self, descriptor):
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def write(self, line):
        data = (line + "\n").encode()
        with self._lock:
            while data:
                written = os.write(self._descriptor, data)
                data = data[written:]


_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class _Worker(threading.Thread):
    """One worker: its messages, in order, and its client."""

    def __init__(self, number, make, output, options):
        super().__init__(daemon=True, name="worker-%d" % number)
        self.number = number
        self.messages = queue.SimpleQueue()
        self._make = make
        self._output = output
        self._options = options
        self._client = None

    def run(self):
        take = self.messages.get
        while True:
            message = take()
            kind = message["type"]
            if kind == "invoke":
                self._invoke(message)
            elif kind == "open":
                self._open(message)
            else:
                self._close()

    def _open(self, message):
        self._close()
        try:
            client = self._make()
            client.open(
                message["node"],
                message["address"],
                message["addresses"],
                self._options,
                message["deadline_ms"] / 1000,
            )
            self._client = client
        except Exception as error:
            text = _encode("%s: %s" % (type(error).__name__, error))
            self._output.write('{"type":"open_failed","worker":%d,"error":%s}' % (self.number, text))
            return
        self._output.write('{"type":"opened","worker":%d}' % self.number)

    def _invoke(self, message):
        number = message["id"]
        try:
            if self._client is None:
                raise Fail("the worker is not open")
            value = self._client.invoke(
                message["f"], message.get("key"), message["value"], message["deadline_ms"] / 1000
            )
        except Fail as error:
            line = '{"type":"fail","id":%d,"error":%s}' % (number, _encode(str(error)))
        except Info as error:
            line = '{"type":"info","id":%d,"error":%s}' % (number, _encode(str(error)))
        except Exception as error:
            if not isinstance(error, OSError):
                traceback.print_exc()
            text = _encode("%s: %s" % (type(error).__name__, error))
            line = '{"type":"info","id":%d,"error":%s}' % (number, text)
        else:
            if type(value) is int:
                line = '{"type":"ok","id":%d,"value":%d}' % (number, value)
            elif isinstance(value, Ok):
                fields = dict(value.fields, type="ok", id=number, value=value.value)
                line = _encode(fields)
            else:
                line = '{"type":"ok","id":%d,"value":%s}' % (number, _encode(value))
        self._output.write(line)

    def _close(self):
        client, self._client = self._client, None
        if client is not None:
            try:
                client.close()
            except Exception:
                pass


def run(make):
    """Carries out the conversation until the bench ends it. `make` is called without arguments and returns a client."""
    descriptor = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    output = _Output(descriptor)
    workers = {}
    options = {}
    decode = json.loads
    rest = b""
    while True:
        data = os.read(0, 1 << 16)
        if not data:
            break
        lines = (rest + data).split(b"\n")
        rest = lines.pop()
        for line in lines:
            message = decode(line)
            kind = message["type"]
            if kind == "hello":
                if message["protocol"] != PROTOCOL:
                    sys.exit("this helper speaks version %d of the client protocol" % PROTOCOL)
                options.update(message.get("options") or {})
                options["workload"] = message.get("workload")
                output.write('{"type":"hello","protocol":%d,"client":"seatrial_client.py"}' % PROTOCOL)
                continue
            number = message["worker"]
            worker = workers.get(number)
            if worker is None:
                worker = workers[number] = _Worker(number, make, output, options)
                worker.start()
            worker.messages.put(message)
    # Threads may wait for a server: the process ends without them.
    sys.stderr.flush()
    os._exit(0)
