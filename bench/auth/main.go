// Command auth measures what authentication costs.
//
//	make build && go run ./bench/auth             two minutes and a half; needs the Python of conformance/setup
//	go run ./bench/auth -scenario get -rounds 40
//	go run ./bench/auth -scenario gate            five minutes: native tokens, handlers in Python, and LangGraph Server with the same handlers
//
// Without gate it compares the requests per second of a server with API keys and one without, to which the same requests are sent, as SDKs do.
// Both servers run all the time, and take turns of a second: what else the machine does meets both. Of each pair of turns the ratio counts, of the ratios the median, and
// its spread says what it is worth: the median lies in the interval with 95 % probability. A ratio of 1 is no cost.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

var (
	binary   = flag.String("binary", "bin/understudy", "`PATH` of the program")
	python   = flag.String("python", "", "`PATH` of an interpreter with langgraph (conformance/setup python)")
	only     = flag.String("scenario", "", "one of thread, stateless, get; these three without; or gate")
	clients  = flag.Int("c", 4, "clients at a time")
	rounds   = flag.Int("rounds", 24, "pairs of turns in each scenario")
	turn     = flag.Duration("turn", time.Second, "length of a turn")
	settling = flag.Duration("settle", 2*time.Second, "turn of each server before the first one that counts")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := measure
	if *only == "gate" {
		run = measureGate
	}
	if err := inFolder(ctx, run); err != nil {
		fmt.Fprintln(os.Stderr, "bench/auth:", err)
		os.Exit(1)
	}
}

// inFolder runs a measurement in a folder of its own. graphs is the file of the graphs.
func inFolder(ctx context.Context, run func(ctx context.Context, folder, graphs string) error) (err error) {
	if *python == "" {
		out, err := exec.CommandContext(ctx, "conformance/setup", "python").Output()
		if err != nil {
			return fmt.Errorf("conformance/setup: %w (run this command in the root of the repository)", err)
		}
		*python = strings.TrimSpace(string(out))
	}
	graphs, err := filepath.Abs("bench/graphs/graphs.py")
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "bench-auth-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	return run(ctx, folder, graphs)
}

func measure(ctx context.Context, folder, graphs string) (err error) {
	var peers [2]*peer
	key, err := newKey(ctx, filepath.Join(folder, "data1"))
	if err != nil {
		return err
	}
	for i, section := range []string{"", `, "auth": {"api_keys": true}`} {
		file := filepath.Join(folder, fmt.Sprintf("%d.json", i))
		if err := os.WriteFile(file, fmt.Appendf(nil, `{"dependencies": [%q], "graphs": {"echo": %q}%s}`, filepath.Dir(graphs), graphs+":echo", section), 0o600); err != nil {
			return err
		}
		p := &peer{name: fmt.Sprint("server ", i), credential: func(int) string { return "X-Api-Key: " + key + "\r\n" }}
		peers[i] = p
		if err := p.start(ctx, understudy(ctx, file, filepath.Join(folder, fmt.Sprint("data", i))), ""); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.stop()) }()
		if err := p.connect(*clients); err != nil {
			return err
		}
		for range *clients {
			t, err := p.newThread(0, 0)
			if err != nil {
				return err
			}
			p.threads = append(p.threads, t)
		}
	}
	for _, s := range []struct {
		name, title string
		send        func(p *peer, client int) error
	}{
		{"thread", "POST /threads/{id}/runs/wait", func(p *peer, c int) error {
			return p.send(c, 0, "POST", "/threads/"+p.threads[c]+"/runs/wait", echo, nil)
		}},
		{"stateless", "POST /runs/wait", func(p *peer, c int) error { return p.send(c, 0, "POST", "/runs/wait", echo, nil) }},
		{"get", "GET /threads/{id}", func(p *peer, c int) error { return p.send(c, 0, "GET", "/threads/"+p.threads[c], "", nil) }},
	} {
		if *only != "" && *only != s.name {
			continue
		}
		var rates, server, workers [2][]float64
		for i, p := range peers {
			if _, _, err := perSecond(ctx, *settling, func(c int) error { return s.send(p, c) }); err != nil {
				return fmt.Errorf("%s, server %d: %w", s.title, i, err)
			}
		}
		var ratios []float64
		for n := range *rounds {
			for k := range peers { // each is first in half of the pairs
				i := (n + k) % 2
				serverBefore, workersBefore := cpu(peers[i].process.Process.Pid)
				rate, n, err := perSecond(ctx, *turn, func(c int) error { return s.send(peers[i], c) })
				if err != nil {
					return fmt.Errorf("%s, server %d: %w", s.title, i, err)
				}
				serverAfter, workersAfter := cpu(peers[i].process.Process.Pid)
				rates[i] = append(rates[i], rate)
				server[i] = append(server[i], float64((serverAfter-serverBefore).Microseconds())/float64(n))
				workers[i] = append(workers[i], float64((workersAfter-workersBefore).Microseconds())/float64(n))
			}
			ratios = append(ratios, rates[1][n]/rates[0][n])
		}
		low, high := interval(ratios)
		fmt.Printf("%-30s without %7.0f/s  with keys %7.0f/s  ratio %.3f (%.3f to %.3f)\n", s.title, median(rates[0]), median(rates[1]), median(ratios), low, high)
		for name, used := range map[string][2][]float64{"server": server, "workers": workers} {
			if without, with := tenth(used[0]), tenth(used[1]); without > 0 {
				fmt.Printf("    processor time of a request, %-8s without %7.1f µs  with keys %7.1f µs  %+.1f µs (%.3f)\n", name+":", without, with, with-without, without/with)
			}
		}
	}
	return nil
}

// echo is a run of the smallest graph in Python.
const echo = `{"assistant_id": "echo", "input": {"messages": [{"role": "user", "content": "hello"}]}}`

// newKey makes an API key in a data folder.
func newKey(ctx context.Context, data string) (string, error) {
	out, err := exec.CommandContext(ctx, *binary, "keys", "create", "--name", "bench", "--data", data).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("understudy keys create: %w: %s", err, out)
	}
	key := regexp.MustCompile(`us_[\w-]+`).Find(out)
	if key == nil {
		return "", fmt.Errorf("understudy keys create printed no key: %s", out)
	}
	return string(key), nil
}

// perSecond lets all clients send requests, each the next when it has the answer, and returns how many there were in a second, and how many there were.
func perSecond(ctx context.Context, d time.Duration, send func(client int) error) (rate float64, sum int, err error) {
	counts, errs := make([]int, *clients), make([]error, *clients)
	began := time.Now()
	var all sync.WaitGroup
	for c := range *clients {
		all.Go(func() {
			for time.Since(began) < d && errs[c] == nil && ctx.Err() == nil {
				if errs[c] = send(c); errs[c] == nil {
					counts[c]++
				}
			}
		})
	}
	all.Wait()
	for _, n := range counts {
		sum += n
	}
	return float64(sum) / time.Since(began).Seconds(), sum, errors.Join(errs...)
}

// tenth is the value below which a tenth of the list is: that of turns in which the machine did little else.
func tenth(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/10]
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}

// interval holds the median with a probability of 95 %: by the order of the values, without a guess about how they spread.
func interval(list []float64) (low, high float64) {
	list = slices.Sorted(slices.Values(list))
	n := float64(len(list))
	k := max(0, int(math.Floor(n/2-0.98*math.Sqrt(n))))
	return list[k], list[len(list)-1-k]
}
