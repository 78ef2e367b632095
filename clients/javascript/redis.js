// Registers in Redis, over its own protocol: the workloads register and cas-register.
'use strict'

const net = require('net')
const seatrial = require('./seatrial_client.js')

// Compare and set, in one step of the server.
const COMPARE_AND_SET =
  "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('set', KEYS[1], ARGV[2]) return 1 else return 0 end"

class Client {
  async open ({ address, deadline }) {
    const [host, port] = address.split(':')
    this.buffer = Buffer.alloc(0)
    this.waiting = null
    this.socket = net.connect({ host, port: Number(port), noDelay: true })
    this.socket.on('data', data => { this.buffer = Buffer.concat([this.buffer, data]); this.settle() })
    this.socket.on('error', error => this.end(error))
    this.socket.on('close', () => this.end(new Error('the connection was closed')))
    // A first round trip: what fails here was certainly not sent.
    await this.ask(deadline, 'PING')
  }

  end (error) {
    this.error = error
    if (this.waiting) this.waiting.reject(error)
    this.waiting = null
  }

  ask (deadline, ...words) {
    if (this.error) return Promise.reject(this.error)
    const parts = words.map(String).map(word => `$${Buffer.byteLength(word)}\r\n${word}\r\n`)
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('timed out')), deadline)
      const ended = action => value => { clearTimeout(timer); action(value) }
      this.waiting = { resolve: ended(resolve), reject: ended(reject) }
      this.socket.write(`*${words.length}\r\n${parts.join('')}`)
    })
  }

  // Hands a whole reply to the operation that waits for it.
  settle () {
    const end = this.buffer.indexOf('\r\n')
    if (end < 0 || this.waiting === null) return
    const kind = String.fromCharCode(this.buffer[0])
    const head = this.buffer.toString('utf8', 1, end)
    let length = end + 2
    let value = head
    if (kind === ':') value = Number(head)
    if (kind === '$' && head === '-1') value = null
    if (kind === '$' && head !== '-1') {
      length += Number(head) + 2
      if (this.buffer.length < length) return
      value = this.buffer.toString('utf8', end + 2, length - 2)
    }
    this.buffer = this.buffer.subarray(length)
    const waiting = this.waiting
    this.waiting = null
    // The server refused the command: it did not take place.
    if (kind === '-') waiting.reject(new seatrial.Fail(head))
    else waiting.resolve(value)
  }

  async invoke ({ f, key, value, deadline }) {
    switch (f) {
      case 'read': {
        const text = await this.ask(deadline, 'GET', key)
        return text === null ? null : Number(text)
      }
      case 'write':
        await this.ask(deadline, 'SET', key, value)
        return value
      case 'cas':
        if (await this.ask(deadline, 'EVAL', COMPARE_AND_SET, 1, key, value[0], value[1]) === 0) {
          throw new seatrial.Fail('the register has another value')
        }
        return value
    }
    throw new seatrial.Fail(`unknown operation ${f}`)
  }

  close () {
    this.socket.destroy()
  }
}

seatrial.run(() => new Client())
