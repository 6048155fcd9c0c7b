// Command proxy measures what `understudy proxy` costs: each figure is taken through it and beside it, in turns, in one run.
//
//	bench/run proxy
//
// The upstream serves bench/graphs. For the highest rates there is a second upstream, inside of
// this program, that answers at once, so that nothing hides what the proxy takes.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

var (
	upstream = flag.String("upstream", "", "address of a server of bench/graphs")
	binary   = flag.String("binary", "../../bin/understudy", "the program")
	calls    = flag.Int("calls", 2000, "plain calls of each kind, each way")
	tokens   = flag.Int("tokens", 2000, "tokens of a stream")
	streams  = flag.Int("streams", 1000, "streams that are open at once")
	turns    = flag.Int("turns", 200, "turns of the thread that is caught up with")
	given    = flag.String("thread", "", "a thread of so many turns that is there already; else one is made")
)

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2000, DisableCompression: true}}

func main() {
	flag.Parse()
	log.SetFlags(0)
	fake := httptest.NewServer(http.HandlerFunc(answer))
	defer fake.Close()
	through := start(fake.URL)
	figures := map[string]any{
		"instant_ok":     beside(fake.URL, through.url, "/ok"),
		"instant_thread": beside(fake.URL, through.url, "/threads/"+thread),
		"instant_tokens": rates(fake.URL, through.url, 1),
		"instant_16":     rates(fake.URL, through.url, 16),
	}
	figures["open_streams"] = open(fake.URL, through)
	through.stop()
	if *upstream != "" {
		through = start(*upstream)
		figures["real"] = real(*upstream, through)
		through.stop()
	}
	b, _ := json.MarshalIndent(figures, "", "  ")
	fmt.Println(string(b))
}

// --- an upstream that answers at once ----------------------------------------------------

const thread = "11111111-1111-4111-8111-111111111111"

var release = make(chan struct{})

func answer(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/runs/stream"):
		n, _ := strconv.Atoi(r.Header.Get("X-Tokens"))
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, "event: metadata\r\ndata: {\"run_id\":\"22222222-2222-4222-8222-222222222222\",\"attempt\":1}\r\n\r\n")
		w.(http.Flusher).Flush()
		if n < 0 {
			<-release
			return
		}
		event := []byte("event: messages\r\ndata: [{\"content\":\"word \",\"additional_kwargs\":{},\"response_metadata\":{},\"type\":\"AIMessageChunk\",\"id\":\"lc_run--1\",\"tool_calls\":[],\"tool_call_chunks\":[]}," +
			"{\"run_attempt\":1,\"langgraph_version\":\"1.2.22\",\"langgraph_plan\":\"developer\",\"langgraph_step\":1,\"langgraph_node\":\"model\",\"langgraph_triggers\":[\"start\"],\"langgraph_checkpoint_ns\":\"model:1\",\"ls_provider\":\"fake\",\"thread_id\":\"11111111-1111-4111-8111-111111111111\"}]\r\n\r\n")
		for range n {
			_, _ = w.Write(event)
			w.(http.Flusher).Flush()
		}
	case strings.HasSuffix(r.URL.Path, "/history"):
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, "[]")
	case r.URL.Path == "/ok":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"ok":true}`)
	default:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"thread_id":"`+thread+`","created_at":"2026-01-01T00:00:00+00:00","updated_at":"2026-01-01T00:00:00+00:00","metadata":{},"status":"idle","config":{},"values":null}`)
	}
}

// --- the proxy -----------------------------------------------------------------------------

type process struct {
	cmd *exec.Cmd
	url string
	log bytes.Buffer
}

func start(upstream string) *process {
	dir, err := os.MkdirTemp("", "bench-proxy-")
	check(err)
	p := &process{cmd: exec.Command(*binary, "proxy", "--upstream", upstream, "--port", "0", "--data", dir)}
	p.cmd.Stderr = &p.log
	out, err := p.cmd.StdoutPipe()
	check(err)
	check(p.cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	check(err)
	p.url = regexp.MustCompile(`http://\S+`).FindString(line)
	return p
}

func (p *process) stop() {
	check(p.cmd.Process.Signal(os.Interrupt))
	check(p.cmd.Wait())
}

// rss is the memory of the process, in MB.
func (p *process) rss() float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	check(err)
	kb, _ := strconv.ParseFloat(string(regexp.MustCompile(`VmRSS:\s+(\d+)`).FindSubmatch(b)[1]), 64)
	return kb / 1024
}

// --- measures ------------------------------------------------------------------------------

func get(url string) (time.Duration, int) {
	begun := time.Now()
	res, err := client.Get(url)
	check(err)
	n, err := io.Copy(io.Discard, res.Body)
	check(err)
	res.Body.Close()
	if res.StatusCode != 200 {
		log.Fatalf("%s: %s", url, res.Status)
	}
	return time.Since(begun), int(n)
}

// beside makes plain calls both ways, in turns.
func beside(direct, through, path string) map[string]any {
	var d, t []time.Duration
	var size int
	for i := range *calls + 50 {
		one, _ := get(direct + path)
		other, n := get(through + path)
		if size = n; i >= 50 {
			d, t = append(d, one), append(t, other)
		}
	}
	a, b := p50(d), p50(t)
	return map[string]any{"direct_p50_ms": a, "through_p50_ms": b, "added_ms": round(b - a), "ratio": round(b / a), "bytes": size}
}

func p50(d []time.Duration) float64 {
	slices.Sort(d)
	return round(float64(d[len(d)/2]) / 1e6)
}

func round(f float64) float64 { return float64(int64(f*1000+0.5)) / 1000 }

// say streams tokens and gives how many came.
func say(url, path string, body []byte, n int) int {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url+path, bytes.NewReader(body))
	check(err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Tokens", strconv.Itoa(n))
	res, err := client.Do(r)
	check(err)
	defer res.Body.Close()
	in := bufio.NewReaderSize(res.Body, 64<<10)
	got := 0
	for {
		line, err := in.ReadSlice('\n')
		if err == io.EOF {
			return got
		}
		check(err)
		if bytes.HasPrefix(line, []byte("event: messages")) {
			got++
		}
	}
}

// rate is tokens per second of some streams at once.
func rate(url, path string, body []byte, at int) float64 {
	var all sync.WaitGroup
	begun := time.Now()
	for range at {
		all.Go(func() {
			if got := say(url, path, body, *tokens); got < *tokens {
				log.Fatalf("%s: %d tokens of %d", url, got, *tokens)
			}
		})
	}
	all.Wait()
	return float64(at**tokens) / time.Since(begun).Seconds()
}

func rates(direct, through string, at int) map[string]any {
	path := "/threads/" + thread + "/runs/stream"
	return compare(func() float64 { return rate(direct, path, []byte("{}"), at) }, func() float64 { return rate(through, path, []byte("{}"), at) })
}

// compare takes both rates in turns, and the median of each.
func compare(direct, through func() float64) map[string]any {
	var d, t []float64
	direct()
	through()
	for range 9 {
		d, t = append(d, direct()), append(t, through())
	}
	slices.Sort(d)
	slices.Sort(t)
	return map[string]any{"direct_per_s": int(d[4]), "through_per_s": int(t[4]), "ratio": round(t[4] / d[4])}
}

// open holds many streams open through the proxy, and has plain calls between them.
func open(direct string, p *process) map[string]any {
	before := p.rss()
	var all, begun sync.WaitGroup
	begun.Add(*streams)
	for range *streams {
		all.Go(func() {
			r, err := http.NewRequest(http.MethodPost, p.url+"/threads/"+thread+"/runs/stream", strings.NewReader("{}"))
			check(err)
			r.Header.Set("X-Tokens", "-1")
			res, err := client.Do(r)
			check(err)
			_, err = io.ReadFull(res.Body, make([]byte, 20))
			check(err)
			begun.Done()
			_, err = io.Copy(io.Discard, res.Body)
			check(err)
			res.Body.Close()
		})
	}
	begun.Wait()
	during := p.rss()
	plain := beside(direct, p.url, "/ok")
	close(release)
	all.Wait()
	return map[string]any{"streams": *streams, "rss_before_mb": round(before), "rss_mb": round(during), "plain_calls_meanwhile": plain}
}

// real measures on a server of graphs: a thread of many turns that the proxy has never seen, then its state again and again.
func real(direct string, p *process) map[string]any {
	id := *given
	for i := range *turns {
		if *given != "" {
			break
		}
		if id == "" {
			id = post(direct+"/threads", map[string]any{})["thread_id"].(string)
		}
		turn := map[string]any{"assistant_id": "agent", "input": map[string]any{"messages": []any{map[string]any{"role": "user", "content": fmt.Sprintf("say %d", 20+i%10)}}}}
		post(direct+"/threads/"+id+"/runs/wait", turn)
	}
	took, _ := get(p.url + "/threads/" + id + "/messages?limit=1000")
	out := map[string]any{"catch_up_ms": round(float64(took) / 1e6), "turns": *turns}
	time.Sleep(time.Second) // for its log
	for line := range bytes.Lines(p.log.Bytes()) {
		var told struct {
			Msg, Thread_id                    string
			Checkpoints, Requests, Bytes, Cut float64
			Seconds                           float64
		}
		if json.Unmarshal(line, &told) == nil && told.Msg == "thread recorded" && told.Thread_id == id {
			out["catch_up"] = map[string]any{"checkpoints": told.Checkpoints, "requests": told.Requests, "bytes": told.Bytes, "seconds": told.Seconds}
		}
	}
	body, _ := json.Marshal(map[string]any{"assistant_id": "agent", "stream_mode": []string{"messages-tuple"}, "input": map[string]any{
		"messages": []any{map[string]any{"role": "user", "content": fmt.Sprintf("say %d", *tokens)}},
	}})
	other := post(direct+"/threads", map[string]any{})["thread_id"].(string)
	words := func(url string) func() float64 {
		return func() float64 { // each on a thread of its own, or they grow
			fresh := post(direct+"/threads", map[string]any{})["thread_id"].(string)
			return rate(url, "/threads/"+fresh+"/runs/stream", body, 1)
		}
	}
	out["ok"] = beside(direct, p.url, "/ok")
	out["thread"] = beside(direct, p.url, "/threads/"+other)
	out["state_recorded"] = beside(direct, p.url, "/threads/"+id+"/state")
	out["thread_recorded"] = beside(direct, p.url, "/threads/"+id)
	out["tokens"] = compare(words(direct), words(p.url))
	return out
}

func post(url string, body any) map[string]any {
	b, _ := json.Marshal(body)
	res, err := client.Post(url, "application/json", bytes.NewReader(b))
	check(err)
	defer res.Body.Close()
	var out map[string]any
	check(json.NewDecoder(res.Body).Decode(&out))
	if res.StatusCode != 200 {
		log.Fatalf("%s: %s: %v", url, res.Status, out)
	}
	return out
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
