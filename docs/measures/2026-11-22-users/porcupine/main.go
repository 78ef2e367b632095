// Checks a history with Porcupine: `porcupine-check FILE SECONDS` for compare-and-set registers, FILE as written by
// `seatrial export FILE --to jsonl`, and `porcupine-check kv FILE SECONDS` for its own logs of key-value stores. Keys are
// checked by themselves (P-compositionality). Exit status: 0 valid, 1 invalid, 2 no answer in time.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

type line struct {
	Index   int64           `json:"index"`
	Type    string          `json:"type"`
	Process json.RawMessage `json:"process"`
	F       string          `json:"f"`
	Value   json.RawMessage `json:"value"`
}

// A call: what a client asked for, and of a read what it saw.
type input struct {
	f        string
	from, to *int64
}

type state struct {
	isSet bool
	value int64
}

func equal(s state, value *int64) bool {
	if value == nil {
		return !s.isSet
	}
	return s.isSet && s.value == *value
}

var model = porcupine.Model{
	Init: func() interface{} { return state{} },
	Step: func(before, asked, seen interface{}) (bool, interface{}) {
		s, in := before.(state), asked.(input)
		switch in.f {
		case "write":
			return true, state{true, *in.to}
		case "cas":
			// One of unknown outcome may have found another value and changed nothing.
			if seen == nil && !equal(s, in.from) {
				return true, s
			}
			return equal(s, in.from), state{true, *in.to}
		default:
			if seen == nil {
				return true, s
			}
			return equal(s, seen.(input).to), s
		}
	},
	Equal: func(one, other interface{}) bool { return one.(state) == other.(state) },
}

// The key and the input of a value `[key, value]` or `[key, [from, to]]`.
func parse(f string, raw json.RawMessage) (int64, input) {
	var parts []json.RawMessage
	must(json.Unmarshal(raw, &parts))
	var key int64
	must(json.Unmarshal(parts[0], &key))
	in := input{f: f}
	if f == "cas" {
		var two []*int64
		must(json.Unmarshal(parts[1], &two))
		in.from, in.to = two[0], two[1]
	} else {
		must(json.Unmarshal(parts[1], &in.to))
	}
	return key, in
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(254)
	}
}

type open struct {
	key  int64
	in   input
	call int64
}

func exit(result porcupine.CheckResult) {
	fmt.Println(result)
	switch result {
	case porcupine.Ok:
		os.Exit(0)
	case porcupine.Illegal:
		os.Exit(1)
	default:
		os.Exit(2)
	}
}

func main() {
	if os.Args[1] == "kv" {
		seconds, err := strconv.Atoi(os.Args[3])
		must(err)
		exit(checkKv(os.Args[2], seconds))
	}
	file, err := os.Open(os.Args[1])
	must(err)
	seconds, err := strconv.Atoi(os.Args[2])
	must(err)
	running := map[string]open{}
	keys := map[int64][]porcupine.Operation{}
	client := 0
	add := func(begun open, seen interface{}, end int64) {
		client++
		keys[begun.key] = append(keys[begun.key], porcupine.Operation{
			ClientId: client, Input: begun.in, Call: begun.call, Output: seen, Return: end,
		})
	}
	scanner := bufio.NewScanner(file)
	scanner.Buffer(make([]byte, 1<<20), 1<<26)
	for scanner.Scan() {
		var op line
		must(json.Unmarshal(scanner.Bytes(), &op))
		process := string(op.Process)
		if op.Type == "invoke" {
			key, in := parse(op.F, op.Value)
			running[process] = open{key, in, op.Index}
			continue
		}
		begun, found := running[process]
		if !found {
			continue
		}
		delete(running, process)
		switch op.Type {
		case "ok":
			_, seen := parse(op.F, op.Value)
			add(begun, seen, op.Index)
		case "info":
			if begun.in.f != "read" {
				add(begun, nil, math.MaxInt64)
			}
		}
	}
	must(scanner.Err())
	for _, begun := range running {
		if begun.in.f != "read" {
			add(begun, nil, math.MaxInt64)
		}
	}
	result := porcupine.Ok
	until := time.Now().Add(time.Duration(seconds) * time.Second)
	for _, operations := range keys {
		left := time.Until(until)
		if left <= 0 {
			result = porcupine.Unknown
			break
		}
		answer := porcupine.CheckOperationsTimeout(model, operations, left)
		if answer == porcupine.Illegal {
			result = answer
			break
		}
		if answer == porcupine.Unknown {
			result = answer
		}
	}
	exit(result)
}
