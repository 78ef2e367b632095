// How many operations a second a client carries out through the client protocol, and its processor time for each.
//
//	go run ./throughput [-workers 50] [-operations 500000] COMMAND...
//
// It plays the bench: one operation for each worker at a time, half of them reads and half writes.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"
)

func main() {
	workers := flag.Int("workers", 50, "workers, each with one operation at a time")
	operations := flag.Int("operations", 500_000, "operations")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: throughput [-workers N] [-operations N] COMMAND...")
		os.Exit(2)
	}
	command := exec.Command(flag.Arg(0), flag.Args()[1:]...)
	command.Stderr = os.Stderr
	pipe, err := command.StdinPipe()
	check(err)
	answers, err := command.StdoutPipe()
	check(err)
	check(command.Start())
	input := bufio.NewWriterSize(pipe, 1<<16)
	output := bufio.NewReaderSize(answers, 1<<16)
	fmt.Fprintln(input, `{"type":"hello","protocol":1,"workload":"register","options":{}}`)
	check(input.Flush())
	expect(output, `"hello"`)
	for worker := 0; worker < *workers; worker++ {
		fmt.Fprintf(input, `{"type":"open","worker":%d,"node":"n1","address":"127.0.0.1:1","addresses":{},"deadline_ms":2000}`+"\n", worker)
	}
	check(input.Flush())
	for worker := 0; worker < *workers; worker++ {
		expect(output, `"opened"`)
	}
	began := time.Now()
	owner := map[int]int{}
	next, done, failed := 0, 0, 0
	invoke := func(worker int) {
		kind, value := "read", "null"
		if next%2 == 1 {
			kind, value = "write", strconv.Itoa(next)
		}
		fmt.Fprintf(input, `{"type":"invoke","id":%d,"worker":%d,"f":"%s","key":%d,"value":%s,"deadline_ms":2000}`+"\n",
			next, worker, kind, next%100, value)
		owner[next] = worker
		next++
	}
	for worker := 0; worker < *workers && next < *operations; worker++ {
		invoke(worker)
	}
	check(input.Flush())
	for done < *operations {
		line, err := output.ReadSlice('\n')
		check(err)
		id := number(line)
		worker, known := owner[id]
		if !known {
			check(fmt.Errorf("no operation has this id: %s", line))
		}
		delete(owner, id)
		if !bytes.Contains(line, []byte(`"ok"`)) {
			failed++
		}
		done++
		if next < *operations {
			invoke(worker)
		}
		// As the bench does: what has gathered is written when no answer is waiting.
		if output.Buffered() == 0 {
			check(input.Flush())
		}
	}
	took := time.Since(began)
	check(input.Flush())
	check(pipe.Close())
	check(command.Wait())
	state := command.ProcessState
	processor := state.UserTime() + state.SystemTime()
	fmt.Printf("%d operations, %d workers, %d not ok: %.0f op/s; processor time of the client %.1f us an operation, so at most %.0f op/s of one core\n",
		done, *workers, failed, float64(done)/took.Seconds(),
		float64(processor.Microseconds())/float64(done), float64(done)/processor.Seconds())
}

// number is the value of "id" in a line.
func number(line []byte) int {
	begin := bytes.Index(line, []byte(`"id":`))
	if begin < 0 {
		return -1
	}
	id := 0
	for _, digit := range bytes.TrimLeft(line[begin+5:], " ") {
		if digit < '0' || digit > '9' {
			break
		}
		id = 10*id + int(digit-'0')
	}
	return id
}

func expect(output *bufio.Reader, text string) {
	line, err := output.ReadBytes('\n')
	check(err)
	if !bytes.Contains(line, []byte(text)) {
		check(fmt.Errorf("expected %s, got %s", text, line))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "throughput:", err)
		os.Exit(1)
	}
}
