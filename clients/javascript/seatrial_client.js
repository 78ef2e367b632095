// The client protocol of seatrial for JavaScript (Node), in one file without dependencies.
//
//   const seatrial = require('seatrial_client.js')
//   seatrial.run(() => ({
//     async open ({ node, address, addresses, workload, options, deadline }) { … },  // connect, make a first round trip
//     async invoke ({ f, key, value, deadline }) { … },                              // returns the value of the completion
//     async close () { … }
//   }))
//
// Each worker has a client of its own. `throw new seatrial.Fail('…')`: the operation certainly did not take place. Any other
// error: its outcome is unknown; the worker is then closed and opened again. `new seatrial.Ok(value, { node: 'n2' })` adds
// fields to a completion. `deadline` is in milliseconds.
//
// Standard output belongs to the protocol: `console.log` is redirected to standard error.
'use strict'

const fs = require('fs')

const PROTOCOL = 1

class Fail extends Error {}

class Ok {
  constructor (value, fields) {
    this.value = value
    this.fields = fields
  }
}

// Lines are written in one piece at the end of each turn of the event loop.
const lines = []
function say (line) {
  if (lines.push(line) === 1) setImmediate(write)
}

function write () {
  let data = Buffer.from(lines.join('\n') + '\n')
  lines.length = 0
  while (data.length > 0) {
    try {
      data = data.subarray(fs.writeSync(1, data))
    } catch (error) {
      if (error.code === 'EPIPE') process.exit(1)
      if (error.code !== 'EAGAIN') throw error
    }
  }
}

function completion (id, value) {
  if (value instanceof Ok) return { ...value.fields, type: 'ok', id, value: value.value ?? null }
  return { type: 'ok', id, value: value ?? null }
}

class Worker {
  constructor (number, make, hello) {
    this.number = number
    this.make = make
    this.hello = hello
    this.client = null
    this.last = Promise.resolve()
  }

  // Messages of a worker are carried out one after another.
  take (message) {
    this.last = this.last.then(() => this[message.type](message))
  }

  async open (message) {
    await this.close()
    const client = this.make()
    try {
      await client.open({
        node: message.node,
        address: message.address,
        addresses: message.addresses,
        workload: this.hello.workload,
        options: this.hello.options,
        deadline: message.deadline_ms
      })
    } catch (error) {
      say(JSON.stringify({ type: 'open_failed', worker: this.number, error: String(error.message ?? error) }))
      return
    }
    this.client = client
    say(JSON.stringify({ type: 'opened', worker: this.number }))
  }

  async invoke (message) {
    const { id, f, key, value, deadline_ms: deadline } = message
    try {
      if (this.client === null) throw new Fail('the worker is not open')
      say(JSON.stringify(completion(id, await this.client.invoke({ f, key, value, deadline }))))
    } catch (error) {
      const type = error instanceof Fail ? 'fail' : 'info'
      say(JSON.stringify({ type, id, error: String(error.message ?? error) }))
    }
  }

  async close () {
    const client = this.client
    this.client = null
    if (client !== null) {
      try {
        await client.close()
      } catch {}
    }
  }
}

function run (make) {
  console.log = console.info = console.error
  const workers = new Map()
  const hello = {}
  let rest = ''
  process.stdin.setEncoding('utf8')
  process.stdin.on('data', data => {
    const parts = (rest + data).split('\n')
    rest = parts.pop()
    for (const line of parts) {
      const message = JSON.parse(line)
      if (message.type === 'hello') {
        if (message.protocol !== PROTOCOL) {
          console.error(`this helper speaks version ${PROTOCOL} of the client protocol`)
          process.exit(1)
        }
        Object.assign(hello, message)
        say(JSON.stringify({ type: 'hello', protocol: PROTOCOL, client: 'seatrial_client.js' }))
        continue
      }
      let worker = workers.get(message.worker)
      if (worker === undefined) {
        worker = new Worker(message.worker, make, hello)
        workers.set(message.worker, worker)
      }
      worker.take(message)
    }
  })
  process.stdin.on('end', () => process.exit(0))
}

module.exports = { run, Fail, Ok, PROTOCOL }
