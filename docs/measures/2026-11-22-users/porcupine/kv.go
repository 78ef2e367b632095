package main

// Porcupine's logs of key-value stores (`test_data/kv` of its repository), with the model of its own tests: state per key
// is the text.

import (
	"bufio"
	"os"
	"regexp"
	"sort"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

type kvInput struct {
	op    string
	key   string
	value string
}

var kvModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, one := range history {
			key := one.Input.(kvInput).key
			byKey[key] = append(byKey[key], one)
		}
		keys := []string{}
		for key := range byKey {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		parts := [][]porcupine.Operation{}
		for _, key := range keys {
			parts = append(parts, byKey[key])
		}
		return parts
	},
	Init: func() interface{} { return "" },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		in, text := input.(kvInput), state.(string)
		switch in.op {
		case "get":
			return output.(string) == text, state
		case "put":
			return true, in.value
		default:
			return true, text + in.value
		}
	},
}

func checkKv(path string, seconds int) porcupine.CheckResult {
	pattern := regexp.MustCompile(`{:process (\d+), :type :(invoke|ok), :f :(get|put|append), :key "(.*)", :value (nil|"(.*)")}`)
	file, err := os.Open(path)
	must(err)
	scanner := bufio.NewScanner(file)
	scanner.Buffer(make([]byte, 1<<20), 1<<26)
	open := map[string]porcupine.Operation{}
	history := []porcupine.Operation{}
	time_ := int64(0)
	for scanner.Scan() {
		parts := pattern.FindStringSubmatch(scanner.Text())
		if parts == nil {
			continue
		}
		time_++
		process, _ := strconv.Atoi(parts[1])
		if parts[2] == "invoke" {
			open[parts[1]] = porcupine.Operation{ClientId: process, Input: kvInput{parts[3], parts[4], parts[6]}, Call: time_}
			continue
		}
		one := open[parts[1]]
		delete(open, parts[1])
		one.Output, one.Return = parts[6], time_
		history = append(history, one)
	}
	return porcupine.CheckOperationsTimeout(kvModel, history, time.Duration(seconds)*time.Second)
}
