"""A client without a server: a register of each worker in memory. It measures the protocol and the helper."""

import seatrial_client as seatrial


class Register:
    value = None

    def open(self, node, address, addresses, options, deadline):
        pass

    def invoke(self, f, key, value, deadline):
        if f == "read":
            return self.value
        if f != "write":
            raise seatrial.Fail("unknown operation " + f)
        self.value = value
        return value

    def close(self):
        pass


seatrial.run(Register)
