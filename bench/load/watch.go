package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// watchedTokens runs a paced graph as the studio does, in the background, while so many clients look on at each thread: what they cost the server is the
// difference to the same without them.
func watchedTokens() {
	body := streamBody(pick("paced10"), *tokens, map[string]any{
		"stream_mode": []string{"messages-tuple", "updates", "tasks", "custom"}, "stream_subgraphs": true, "stream_resumable": true,
	})
	lat, _, e := loop(func(int) error { return watchedRun(body) })
	procs := readProcs()
	res := map[string]any{"ops": len(lat), "watchers": *watchers, "tokens": len(lat) * *tokens, "lat_ms": dist(lat)}
	for name, p := range procs {
		res["own_cpu_us_per_token_"+name] = round(p.(map[string]any)["own_cpu_s"].(float64) * 1e6 / float64(max(1, len(lat)**tokens)))
	}
	result(res, e)
}

// watchedRun waits for a run on a new thread. Each client has to see every word.
func watchedRun(body []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	id, err := newThread(nil)
	if err != nil {
		return err
	}
	seen := make(chan error, *watchers)
	var open sync.WaitGroup
	for range *watchers {
		resp, err := do(ctx, "GET", "/threads/"+id+"/stream", nil)
		if err != nil {
			return short(err)
		}
		open.Add(1)
		go func() {
			defer open.Done()
			seen <- watch(resp)
		}()
	}
	defer open.Wait()
	defer cancel()
	b, err := call("POST", "/threads/"+id+"/runs", body)
	if err != nil {
		return err
	}
	var run struct {
		ID string `json:"run_id"`
	}
	if err := json.Unmarshal(b, &run); err != nil {
		return err
	}
	if _, err := call("GET", "/threads/"+id+"/runs/"+run.ID+"/join", nil); err != nil {
		return err
	}
	for range *watchers {
		select {
		case err := <-seen:
			if err != nil {
				return err
			}
		case <-time.After(10 * time.Second):
			return fmt.Errorf("a client did not see the last word")
		}
	}
	return nil
}

// watch reads the stream of a thread until it has seen every word.
func watch(resp *http.Response) error {
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		b, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("status %d: %.100s", resp.StatusCode, b)
	}
	s := sse{r: bufio.NewReaderSize(resp.Body, 16<<10)}
	for words := 0; words < *tokens; {
		ev, err := s.next()
		if err != nil {
			return short(err)
		}
		if bytes.HasPrefix([]byte(ev.name), []byte("messages")) && bytes.Contains(ev.data, fmt.Appendf(nil, "w%d\"", words)) {
			words++
		}
	}
	return nil
}
