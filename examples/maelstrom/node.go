// A node for `seatrial maelstrom test -w lin-kv`: registers at the first node, to which the others forward requests. With the
// argument `local`, each node keeps registers of its own, which is wrong.
//
//	go build -o node examples/maelstrom/node.go && seatrial maelstrom test -w lin-kv --bin ./node
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
)

type body = map[string]any

type message struct {
	Src  string `json:"src"`
	Dest string `json:"dest"`
	Body body   `json:"body"`
}

type origin struct {
	client string
	number any
}

type node struct {
	id, primary string
	isLocal     bool
	out         *bufio.Writer
	registers   map[string]any
	next        float64
	forwarded   map[float64]origin
}

func (n *node) send(dest string, body body) {
	line, err := json.Marshal(message{n.id, dest, body})
	if err != nil {
		panic(err)
	}
	n.out.Write(append(line, '\n'))
}

// apply carries a request out.
func (n *node) apply(request body) body {
	key := fmt.Sprint(request["key"])
	value, exists := n.registers[key]
	switch request["type"] {
	case "read":
		if !exists {
			return body{"type": "error", "code": 20, "text": "no such key"}
		}
		return body{"type": "read_ok", "value": value}
	case "write":
		n.registers[key] = request["value"]
		return body{"type": "write_ok"}
	case "cas":
		if !exists {
			return body{"type": "error", "code": 20, "text": "no such key"}
		}
		if !reflect.DeepEqual(value, request["from"]) {
			return body{"type": "error", "code": 22, "text": fmt.Sprintf("expected %v, had %v", request["from"], value)}
		}
		n.registers[key] = request["to"]
		return body{"type": "cas_ok"}
	}
	return body{"type": "error", "code": 10, "text": fmt.Sprintf("no request %v", request["type"])}
}

func (n *node) handle(m message) {
	if number, ok := m.Body["in_reply_to"].(float64); ok {
		if from, ok := n.forwarded[number]; ok {
			delete(n.forwarded, number)
			delete(m.Body, "msg_id")
			m.Body["in_reply_to"] = from.number
			n.send(from.client, m.Body)
		}
		return
	}
	if m.Body["type"] == "init" {
		n.id = m.Body["node_id"].(string)
		n.primary = m.Body["node_ids"].([]any)[0].(string)
		n.send(m.Src, body{"type": "init_ok", "in_reply_to": m.Body["msg_id"]})
		return
	}
	if n.id != n.primary && !n.isLocal {
		n.next++
		n.forwarded[n.next] = origin{m.Src, m.Body["msg_id"]}
		m.Body["msg_id"] = n.next
		n.send(n.primary, m.Body)
		return
	}
	reply := n.apply(m.Body)
	reply["in_reply_to"] = m.Body["msg_id"]
	n.send(m.Src, reply)
}

func main() {
	n := &node{out: bufio.NewWriter(os.Stdout), registers: map[string]any{}, forwarded: map[float64]origin{}}
	n.isLocal = len(os.Args) > 1 && os.Args[1] == "local"
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		n.handle(m)
		if lines.Buffered() == 0 {
			n.out.Flush()
		}
	}
}
