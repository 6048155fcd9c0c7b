// Command auth measures what native authentication costs: requests per second of a server with API keys, in proportion to one without.
//
//	make build && go run ./bench/auth            two minutes and a half; needs the Python of conformance/setup
//	go run ./bench/auth -scenario get -rounds 40
//
// Both servers run all the time, and take turns of a second: what else the machine does meets both. Of each pair of turns the ratio counts, of the ratios the median, and
// its spread says what it is worth: the median lies in the interval with 95 % probability. A ratio of 1 is no cost.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

var (
	binary   = flag.String("binary", "bin/understudy", "`PATH` of the program")
	python   = flag.String("python", "", "`PATH` of an interpreter with langgraph (conformance/setup python)")
	only     = flag.String("scenario", "", "one of thread, stateless, get; all without")
	clients  = flag.Int("c", 4, "clients at a time")
	rounds   = flag.Int("rounds", 24, "pairs of turns in each scenario")
	turn     = flag.Duration("turn", time.Second, "length of a turn")
	settling = flag.Duration("settle", 2*time.Second, "turn of each server before the first one that counts")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench/auth:", err)
		os.Exit(1)
	}
}

// peer is one of the two servers.
type peer struct {
	url, key string // key: "" without authentication
	threads  []string
	process  *exec.Cmd
}

func measure(ctx context.Context) (err error) {
	if *python == "" {
		out, err := exec.CommandContext(ctx, "conformance/setup", "python").Output()
		if err != nil {
			return fmt.Errorf("conformance/setup: %w (run this command in the root of the repository)", err)
		}
		*python = strings.TrimSpace(string(out))
	}
	folder, err := os.MkdirTemp("", "bench-auth-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	graphs, err := filepath.Abs("bench/graphs/graphs.py")
	if err != nil {
		return err
	}
	var peers [2]*peer
	for i, section := range []string{"", `, "auth": {"api_keys": true}`} {
		file := filepath.Join(folder, fmt.Sprintf("%d.json", i))
		text := fmt.Sprintf(`{"dependencies": [%q], "graphs": {"echo": %q}%s}`, filepath.Dir(graphs), graphs+":echo", section)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		p := &peer{}
		if peers[i] = p; section != "" {
			if p.key, err = newKey(ctx, filepath.Join(folder, fmt.Sprint("data", i))); err != nil {
				return err
			}
		}
		if err := p.start(ctx, file, filepath.Join(folder, fmt.Sprint("data", i))); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.stop()) }()
	}
	for _, p := range peers {
		for range *clients {
			var t struct {
				ID string `json:"thread_id"`
			}
			if err := p.send(ctx, "POST", "/threads", `{}`, &t); err != nil {
				return err
			}
			p.threads = append(p.threads, t.ID)
		}
	}
	for _, s := range []struct {
		name, title string
		send        func(ctx context.Context, p *peer, client int) error
	}{
		{"thread", "POST /threads/{id}/runs/wait", func(ctx context.Context, p *peer, client int) error {
			return p.send(ctx, "POST", "/threads/"+p.threads[client]+"/runs/wait", echo, nil)
		}},
		{"stateless", "POST /runs/wait", func(ctx context.Context, p *peer, _ int) error { return p.send(ctx, "POST", "/runs/wait", echo, nil) }},
		{"get", "GET /threads/{id}", func(ctx context.Context, p *peer, client int) error {
			return p.send(ctx, "GET", "/threads/"+p.threads[client], "", nil)
		}},
	} {
		if *only != "" && *only != s.name {
			continue
		}
		var rates, server, workers [2][]float64
		for i, p := range peers {
			if _, _, err := perSecond(ctx, *settling, func(ctx context.Context, c int) error { return s.send(ctx, p, c) }); err != nil {
				return fmt.Errorf("%s, server %d: %w", s.title, i, err)
			}
		}
		var ratios []float64
		for n := range *rounds {
			for k := range peers { // each is first in half of the pairs
				i := (n + k) % 2
				serverBefore, workersBefore := cpu(peers[i].process.Process.Pid)
				rate, n, err := perSecond(ctx, *turn, func(ctx context.Context, c int) error { return s.send(ctx, peers[i], c) })
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

func (p *peer) start(ctx context.Context, file, data string) error {
	p.process = exec.CommandContext(ctx, *binary, "serve", "--config", file, "--data", data, "--port", "0", "--python", *python, "--workers", "1", "--log-level", "error")
	p.process.Cancel = func() error { return p.process.Process.Signal(syscall.SIGTERM) }
	p.process.Stderr = os.Stderr
	out, err := p.process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.process.Start(); err != nil {
		return fmt.Errorf("%w (make build)", err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "understudy listening on "); ok {
			p.url = url
			go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the process
			return p.send(ctx, "POST", "/runs/wait", echo, nil)
		}
	}
	return errors.New("the server did not start")
}

func (p *peer) stop() error {
	if err := p.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return p.process.Wait()
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}

func (p *peer) send(ctx context.Context, method, path, body string, into any) error {
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	if p.key != "" {
		r.Header.Set("X-Api-Key", p.key)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return err
	case answer.StatusCode != http.StatusOK || bytes.Contains(text, []byte(`"__error__"`)):
		return fmt.Errorf("%s %s: %d %s", method, path, answer.StatusCode, text)
	case into == nil:
		return nil
	}
	return json.Unmarshal(text, into)
}

// perSecond lets all clients send requests, each the next when it has the answer, and returns how many there were in a second, and how many there were.
func perSecond(ctx context.Context, d time.Duration, send func(ctx context.Context, client int) error) (rate float64, sum int, err error) {
	counts, errs := make([]int, *clients), make([]error, *clients)
	began := time.Now()
	var all sync.WaitGroup
	for c := range *clients {
		all.Go(func() {
			for time.Since(began) < d && errs[c] == nil {
				if errs[c] = send(ctx, c); errs[c] == nil {
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

// cpu returns the processor time that a process and its children have used so far; 0 where there is no /proc. Other programs on the machine change it little, unlike rates.
func cpu(pid int) (server, workers time.Duration) {
	server = cpuOf(pid)
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(child); err == nil {
				workers += cpuOf(n)
			}
		}
	}
	return server, workers
}

func cpuOf(pid int) time.Duration {
	var sum time.Duration
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, list := range lists { // of threads: what they ran, in nanoseconds
		text, _ := os.ReadFile(list)
		ran, _, _ := strings.Cut(string(text), " ")
		if n, err := strconv.ParseInt(ran, 10, 64); err == nil {
			sum += time.Duration(n)
		}
	}
	return sum
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
