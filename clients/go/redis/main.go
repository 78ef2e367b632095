// Registers in Redis, over its own protocol: the workloads register and cas-register.
package main

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"seatrial.example/clients/seatrial"
)

// Compare and set, in one step of the server.
const compareAndSet = `if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('set', KEYS[1], ARGV[2]) return 1 else return 0 end`

type client struct {
	connection net.Conn
	replies    *bufio.Reader
}

func (c *client) Open(open seatrial.Open) error {
	connection, err := net.DialTimeout("tcp", open.Address, open.Deadline)
	if err != nil {
		return err
	}
	c.connection, c.replies = connection, bufio.NewReader(connection)
	// A first round trip: what fails here was certainly not sent.
	if _, err = c.ask(open.Deadline, "PING"); err != nil {
		connection.Close()
	}
	return err
}

func (c *client) Close() { c.connection.Close() }

// ask sends a command; the reply is nil, an int64 or a string.
func (c *client) ask(deadline time.Duration, words ...string) (any, error) {
	_ = c.connection.SetDeadline(time.Now().Add(deadline))
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := c.connection.Write([]byte(request.String())); err != nil {
		return nil, err
	}
	line, err := c.replies.ReadString('\n')
	if err != nil {
		return nil, err
	}
	rest := strings.TrimRight(line[1:], "\r\n")
	switch line[0] {
	case '+':
		return rest, nil
	case ':':
		return strconv.ParseInt(rest, 10, 64)
	case '$':
		length, err := strconv.Atoi(rest)
		if err != nil || length < 0 {
			return nil, err
		}
		text := make([]byte, length+2)
		for read := 0; read < len(text); {
			count, err := c.replies.Read(text[read:])
			if err != nil {
				return nil, err
			}
			read += count
		}
		return string(text[:length]), nil
	case '-':
		// The server refused the command: it did not take place.
		return nil, seatrial.Fail("%s", rest)
	}
	return nil, fmt.Errorf("unexpected reply %q", line)
}

func (c *client) Invoke(op seatrial.Op) (any, error) {
	key := seatrial.Text(op.Key)
	switch op.F {
	case "read":
		reply, err := c.ask(op.Deadline, "GET", key)
		if err != nil || reply == nil {
			return nil, err
		}
		return strconv.ParseInt(reply.(string), 10, 64)
	case "write":
		_, err := c.ask(op.Deadline, "SET", key, string(op.Value))
		return nil, err
	case "cas":
		pair := strings.Split(strings.Trim(string(op.Value), "[]"), ",")
		reply, err := c.ask(op.Deadline, "EVAL", compareAndSet, "1", key, pair[0], pair[1])
		if err == nil && reply == int64(0) {
			err = seatrial.Fail("the register has another value")
		}
		return nil, err
	}
	return nil, seatrial.Fail("unknown operation %s", op.F)
}

func main() {
	seatrial.Run(func() seatrial.Client { return &client{} })
}
