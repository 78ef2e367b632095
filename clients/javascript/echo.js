// A client without a server: a register of each worker in memory. It measures the protocol and the helper.
'use strict'

const seatrial = require('./seatrial_client.js')

seatrial.run(() => {
  let register = null
  return {
    open () {},
    invoke ({ f, value }) {
      if (f === 'read') return register
      if (f !== 'write') throw new seatrial.Fail(`unknown operation ${f}`)
      register = value
      return value
    },
    close () {}
  }
})
