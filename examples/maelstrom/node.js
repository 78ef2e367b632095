#!/usr/bin/env node
// A node for `seatrial maelstrom test`: echo, and broadcast with acknowledged gossip (or, with `once`, without: wrong under faults).
//
//     seatrial maelstrom test -w broadcast --bin examples/maelstrom/node.js
'use strict';

const once = process.argv[2] === 'once';
let id = null;
let neighbours = [];
const messages = new Set();
const acknowledged = new Map();

function send(dest, body) {
  process.stdout.write(JSON.stringify({ src: id, dest, body }) + '\n');
}

function known(neighbour) {
  if (!acknowledged.has(neighbour)) acknowledged.set(neighbour, new Set());
  return acknowledged.get(neighbour);
}

const handlers = {
  init(src, body) {
    id = body.node_id;
    return { type: 'init_ok' };
  },
  echo: (src, body) => ({ type: 'echo_ok', echo: body.echo }),
  topology(src, body) {
    neighbours = body.topology[id];
    return { type: 'topology_ok' };
  },
  broadcast(src, body) {
    messages.add(body.message);
    if (once) for (const other of neighbours) send(other, { type: 'share', messages: [body.message] });
    return { type: 'broadcast_ok' };
  },
  read: () => ({ type: 'read_ok', messages: [...messages] }),
  share(src, body) {
    const fresh = body.messages.filter((message) => !messages.has(message));
    for (const message of body.messages) {
      messages.add(message);
      known(src).add(message);
    }
    if (!once) return void send(src, { type: 'shared', messages: body.messages });
    if (fresh.length > 0) for (const other of neighbours) if (other !== src) send(other, { type: 'share', messages: fresh });
  },
  shared(src, body) {
    for (const message of body.messages) known(src).add(message);
  },
};

if (!once) {
  setInterval(() => {
    for (const other of neighbours) {
      const fresh = [...messages].filter((message) => !known(other).has(message));
      if (fresh.length > 0) send(other, { type: 'share', messages: fresh });
    }
  }, 100);
}

const lines = require('readline').createInterface({ input: process.stdin });
lines.on('line', (line) => {
  const { src, body } = JSON.parse(line);
  const handler = handlers[body.type];
  if (!handler) {
    send(src, { type: 'error', code: 10, text: `no request ${body.type}`, in_reply_to: body.msg_id });
    return;
  }
  const reply = handler(src, body);
  if (reply) send(src, { ...reply, in_reply_to: body.msg_id });
});
lines.on('close', () => process.exit(0));
