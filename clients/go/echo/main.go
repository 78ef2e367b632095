// A client without a server: a register of each worker in memory. It measures the protocol and the helper.
package main

import "seatrial.example/clients/seatrial"

type register struct{ value any }

func (r *register) Open(seatrial.Open) error { return nil }

func (r *register) Invoke(op seatrial.Op) (any, error) {
	if op.F == "read" {
		return r.value, nil
	}
	value, err := seatrial.Int(op.Value)
	if err != nil {
		return nil, seatrial.Fail("unknown operation %s", op.F)
	}
	r.value = value
	return value, nil
}

func (r *register) Close() {}

func main() {
	seatrial.Run(func() seatrial.Client { return &register{} })
}
