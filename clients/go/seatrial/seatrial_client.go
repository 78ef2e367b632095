// Package seatrial is the client protocol of seatrial for Go, in one file without dependencies.
//
// A client implements Client; main calls Run with a function that makes one:
//
//	func main() { seatrial.Run(func() seatrial.Client { return &client{} }) }
//
// Each worker has a Client and a goroutine of its own. An error made by Fail says that the operation certainly did not take
// place; any other error says that its outcome is unknown, and the worker is then closed and opened again.
//
// Standard output belongs to the protocol: print to standard error.
package seatrial

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

// Protocol is the version of the client protocol that this file speaks.
const Protocol = 1

// Client carries out the operations of one worker, one at a time.
type Client interface {
	// Open connects, and makes a first round trip. An error: the worker cannot be opened.
	Open(open Open) error
	// Invoke carries out an operation and returns the value of its completion.
	Invoke(op Op) (any, error)
	// Close ends the connection. It is called after a successful Open only.
	Close()
}

// Open says what a worker connects to.
type Open struct {
	// Worker is the worker's number, Node its node, Address the address of that node.
	Worker  int
	Node    string
	Address string
	// Addresses has the addresses of all nodes.
	Addresses map[string]string
	// Workload is the name of the workload, or empty; Options are the options of the file.
	Workload string
	Options  map[string]any
	// Deadline is how long opening may take.
	Deadline time.Duration
}

// Op is one operation.
type Op struct {
	// F is the function. Key and Value are JSON; Key is nil for an operation without a key.
	F     string
	Key   json.RawMessage
	Value json.RawMessage
	// Deadline is how long it may take.
	Deadline time.Duration
}

// Ok is a value with further fields, such as the node that answered.
type Ok struct {
	Value  any
	Fields map[string]any
}

type failure string

func (f failure) Error() string { return string(f) }

// Fail is an error that says: the operation certainly did not take place, and never will.
func Fail(format string, arguments ...any) error {
	return failure(fmt.Sprintf(format, arguments...))
}

// Int is a JSON integer.
func Int(value json.RawMessage) (int64, error) {
	return strconv.ParseInt(string(value), 10, 64)
}

// Text is the text of a JSON text or integer, for keys.
func Text(value json.RawMessage) string {
	if len(value) > 0 && value[0] == '"' {
		var text string
		_ = json.Unmarshal(value, &text)
		return text
	}
	return string(value)
}

type message struct {
	Type      string            `json:"type"`
	Protocol  int               `json:"protocol"`
	Workload  string            `json:"workload"`
	Options   map[string]any    `json:"options"`
	Worker    int               `json:"worker"`
	Node      string            `json:"node"`
	Address   string            `json:"address"`
	Addresses map[string]string `json:"addresses"`
	ID        uint64            `json:"id"`
	F         string            `json:"f"`
	Key       json.RawMessage   `json:"key"`
	Value     json.RawMessage   `json:"value"`
	Deadline  int64             `json:"deadline_ms"`
}

// output collects lines and writes them in one piece when no worker is about to add another.
type output struct {
	lock    sync.Mutex
	lines   bytes.Buffer
	written *sync.Cond
}

func (o *output) say(line []byte) {
	o.lock.Lock()
	o.lines.Write(line)
	o.lines.WriteByte('\n')
	o.lock.Unlock()
	o.written.Signal()
}

func (o *output) write() {
	var spare bytes.Buffer
	for {
		o.lock.Lock()
		for o.lines.Len() == 0 {
			o.written.Wait()
		}
		o.lines, spare = spare, o.lines
		o.lock.Unlock()
		if _, err := os.Stdout.Write(spare.Bytes()); err != nil {
			os.Exit(1)
		}
		spare.Reset()
	}
}

type worker struct {
	messages chan *message
	make     func() Client
	hello    *message
	out      *output
	client   Client
}

func (w *worker) run() {
	for m := range w.messages {
		switch m.Type {
		case "invoke":
			w.invoke(m)
		case "open":
			w.open(m)
		default:
			w.close()
		}
	}
}

func (w *worker) open(m *message) {
	w.close()
	client := w.make()
	err := client.Open(Open{
		Worker: m.Worker, Node: m.Node, Address: m.Address, Addresses: m.Addresses,
		Workload: w.hello.Workload, Options: w.hello.Options,
		Deadline: time.Duration(m.Deadline) * time.Millisecond,
	})
	if err != nil {
		text, _ := json.Marshal(err.Error())
		w.out.say([]byte(fmt.Sprintf(`{"type":"open_failed","worker":%d,"error":%s}`, m.Worker, text)))
		return
	}
	w.client = client
	w.out.say([]byte(fmt.Sprintf(`{"type":"opened","worker":%d}`, m.Worker)))
}

func (w *worker) invoke(m *message) {
	var value any
	var err error = failure("the worker is not open")
	if w.client != nil {
		value, err = w.client.Invoke(Op{
			F: m.F, Key: m.Key, Value: m.Value, Deadline: time.Duration(m.Deadline) * time.Millisecond,
		})
	}
	w.out.say(completion(m.ID, value, err))
}

func completion(id uint64, value any, err error) []byte {
	line := make([]byte, 0, 64)
	kind := "ok"
	if err != nil {
		kind = "info"
		if _, fails := err.(failure); fails {
			kind = "fail"
		}
	}
	line = append(line, `{"type":"`...)
	line = append(line, kind...)
	line = append(line, `","id":`...)
	line = strconv.AppendUint(line, id, 10)
	if err != nil {
		text, _ := json.Marshal(err.Error())
		line = append(line, `,"error":`...)
		line = append(line, text...)
		return append(line, '}')
	}
	if ok, has := value.(Ok); has {
		for name, field := range ok.Fields {
			encoded, _ := json.Marshal(map[string]any{name: field})
			line = append(line, ',')
			line = append(line, encoded[1:len(encoded)-1]...)
		}
		value = ok.Value
	}
	line = append(line, `,"value":`...)
	switch known := value.(type) {
	case nil:
		line = append(line, "null"...)
	case int:
		line = strconv.AppendInt(line, int64(known), 10)
	case int64:
		line = strconv.AppendInt(line, known, 10)
	default:
		encoded, failed := json.Marshal(value)
		if failed != nil {
			return completion(id, nil, failed)
		}
		line = append(line, encoded...)
	}
	return append(line, '}')
}

func (w *worker) close() {
	if w.client != nil {
		w.client.Close()
		w.client = nil
	}
}

// Run carries out the conversation until the bench ends it.
func Run(make_ func() Client) {
	out := &output{}
	out.written = sync.NewCond(&out.lock)
	go out.write()
	workers := map[int]*worker{}
	var hello message
	input := bufio.NewReaderSize(os.Stdin, 1<<16)
	for {
		line, err := input.ReadBytes('\n')
		if err == io.EOF {
			os.Exit(0)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "seatrial:", err)
			os.Exit(1)
		}
		m := &message{}
		if err := json.Unmarshal(line, m); err != nil {
			fmt.Fprintln(os.Stderr, "seatrial: no message:", err)
			os.Exit(1)
		}
		if m.Type == "hello" {
			if m.Protocol != Protocol {
				fmt.Fprintf(os.Stderr, "this helper speaks version %d of the client protocol\n", Protocol)
				os.Exit(1)
			}
			hello = *m
			out.say([]byte(fmt.Sprintf(`{"type":"hello","protocol":%d,"client":"seatrial_client.go"}`, Protocol)))
			continue
		}
		w := workers[m.Worker]
		if w == nil {
			w = &worker{messages: make(chan *message, 16), make: make_, hello: &hello, out: out}
			workers[m.Worker] = w
			go w.run()
		}
		w.messages <- m
	}
}
