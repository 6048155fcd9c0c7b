package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// update saves a checkpoint on a thread of the agent graph, with messages.
func update(id string, messages []any) error {
	_, err := call("POST", "/threads/"+id+"/state", map[string]any{"as_node": "model", "values": map[string]any{"messages": messages}})
	return err
}

// seed makes a thread with so many messages, two in each checkpoint as long as there are few checkpoints.
func seed(n int) (string, error) {
	b, err := call("POST", "/threads", map[string]any{"metadata": map[string]any{"graph_id": pick("agent")}})
	if err != nil {
		return "", err
	}
	var v struct {
		ID string `json:"thread_id"`
	}
	if err := json.Unmarshal(b, &v); err != nil || v.ID == "" {
		return "", fmt.Errorf("no thread_id: %.100s", b)
	}
	step := max(2, n/200)
	for from := 0; from < n; from += step {
		var list []any
		for i := from; i < min(from+step, n); i++ {
			m := map[string]any{"type": "human", "id": fmt.Sprintf("m%d", i), "content": "say 20"}
			if i%2 == 1 {
				m["type"], m["content"] = "ai", "w0 w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 w11 w12 w13 w14 w15 w16 w17 w18 w19"
			}
			list = append(list, m)
		}
		if err := update(v.ID, list); err != nil {
			return "", err
		}
	}
	return v.ID, nil
}

// historySeed makes a long thread by updates of its state, which is fast on servers whose runs wait for a timer.
func historySeed() {
	e := &errs{}
	id, t0 := *thread, time.Now()
	if id == "" {
		var err error
		if id, err = seed(*messages); err != nil {
			e.add(err)
		}
	}
	for range *updates {
		if err := update(id, []any{}); err != nil {
			e.add(err)
			break
		}
	}
	result(map[string]any{"thread_id": id, "seconds": round(time.Since(t0).Seconds())}, e)
}

// turnsAt measures turns on a thread that has so many messages already.
func turnsAt() {
	e := &errs{}
	id, err := seed(*messages)
	if err != nil {
		e.add(err)
		result(map[string]any{}, e)
		return
	}
	body, _ := json.Marshal(map[string]any{"assistant_id": pick("agent"), "stream_mode": []string{"updates"}, "input": map[string]any{"messages": []any{map[string]any{"role": "user", "content": "say 20"}}}})
	var lat []time.Duration
	for i := range *warm + *turns {
		if i == *warm {
			resetProcs()
		}
		t := time.Now()
		b, err := call("POST", "/threads/"+id+"/runs/stream", body)
		if err != nil || !bytes.Contains(b, []byte("w19")) {
			e.add(fmt.Errorf("turn %d: %w", i, err))
			break
		}
		if i >= *warm {
			lat = append(lat, time.Since(t))
		}
	}
	result(map[string]any{"messages": *messages, "turns": len(lat), "lat_ms": dist(lat), "cpu_ms_per_op": perOp(len(lat))}, e)
}

// idleStreams opens the streams of so many threads, on which nothing happens, and measures what they cost while they are open.
func idleStreams(open func(ctx context.Context, thread string) (*http.Response, error)) {
	e := &errs{}
	resetProcs()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var opened, ended sync.WaitGroup
	slots := make(chan struct{}, 16)
	for range *conc {
		opened.Add(1)
		ended.Add(1)
		slots <- struct{}{}
		go func() {
			defer ended.Done()
			id, err := newThread(nil)
			if err == nil {
				resp, derr := open(ctx, id)
				if err = derr; err == nil {
					defer resp.Body.Close()
					if resp.StatusCode != 200 {
						err = fmt.Errorf("status %d", resp.StatusCode)
					}
					<-slots
					opened.Done()
					if err == nil {
						io.Copy(io.Discard, resp.Body) // until cancelled
						if ctx.Err() == nil {
							err = fmt.Errorf("a stream ended by itself")
						}
					}
					if err != nil {
						e.add(err)
					}
					return
				}
			}
			e.add(err)
			<-slots
			opened.Done()
		}()
	}
	opened.Wait()
	time.Sleep(2 * time.Second) // what opening them left behind
	before := readProcs()
	resetProcs()
	time.Sleep(*dur)
	after := readProcs()
	res := map[string]any{"streams": *conc, "seconds": dur.Seconds(), "opening": before, "open": after}
	result(res, e)
	cancel()
	ended.Wait()
}

// openSocket opens the WebSocket of a thread and subscribes to its events. Its body is what the server sends.
func openSocket(ctx context.Context, thread string) (*http.Response, error) {
	resp, err := do(ctx, "GET", "/threads/"+thread+"/stream/events", nil,
		"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return resp, err
	}
	conn, ok := resp.Body.(io.ReadWriter)
	if !ok {
		return resp, fmt.Errorf("a connection of type %T", resp.Body)
	}
	subscribe := `{"id":1,"method":"subscription.subscribe","params":` + eventsOfMessages + `}`
	frame := append([]byte{0x81, 0x80 | byte(len(subscribe)), 0, 0, 0, 0}, subscribe...) // a text of less than 126 bytes, with a mask that changes nothing
	if _, err := conn.Write(frame); err != nil {
		return resp, err
	}
	answer := make([]byte, 512)
	n, err := conn.Read(answer)
	if err != nil {
		return resp, err
	}
	if !bytes.Contains(answer[:n], []byte(`"success"`)) {
		return resp, fmt.Errorf("not subscribed: %.100s", answer[:n])
	}
	resp.StatusCode = http.StatusOK
	resp.Body = &socketBody{conn: conn, Closer: resp.Body}
	context.AfterFunc(ctx, func() { resp.Body.Close() }) // an upgraded connection no longer belongs to the request
	return resp, nil
}

// socketBody reads what a WebSocket sends, and answers pings: a server closes sockets that do not.
type socketBody struct {
	conn io.ReadWriter
	io.Closer
	left uint64 // bytes of the frame that are not read yet
}

func (s *socketBody) Read(b []byte) (int, error) {
	for s.left == 0 {
		head := make([]byte, 2, 10)
		if _, err := io.ReadFull(s.conn, head); err != nil {
			return 0, err
		}
		size := uint64(head[1])
		if more := map[uint64]int{126: 2, 127: 8}[size]; more > 0 {
			size = 0
			if _, err := io.ReadFull(s.conn, head[2:2+more]); err != nil {
				return 0, err
			}
			for _, digit := range head[2 : 2+more] {
				size = size<<8 | uint64(digit)
			}
		}
		if head[0]&0x0f != 0x9 {
			s.left = size
			continue
		}
		pong := append([]byte{0x8a, 0x80 | byte(size), 0, 0, 0, 0}, make([]byte, size)...)
		if _, err := io.ReadFull(s.conn, pong[6:]); err != nil {
			return 0, err
		}
		if _, err := s.conn.Write(pong); err != nil {
			return 0, err
		}
	}
	n, err := s.conn.Read(b[:min(uint64(len(b)), s.left)])
	s.left -= uint64(n)
	return n, err
}

// threadsFill makes threads with the metadata that search looks for, and gives the id of one.
func threadsFill() {
	e := &errs{}
	ch := make(chan int, *total)
	for i := range *total {
		ch <- i
	}
	close(ch)
	var wg sync.WaitGroup
	t0 := time.Now()
	for range 8 {
		wg.Go(func() {
			for i := range ch {
				if _, err := newThread(map[string]any{"bench": "fill", "i": i, "bucket": fmt.Sprintf("b%d", i%(*total/100)), "user": fmt.Sprintf("user-%d", i%1000)}); err != nil {
					e.add(err)
				}
			}
		})
	}
	wg.Wait()
	result(map[string]any{"threads": *total, "per_s": rate(*total, time.Since(t0))}, e)
}

// search measures one by a metadata key that 100 threads match, and the first page of all threads.
func search() {
	res, all := map[string]any{}, &errs{}
	for _, s := range []struct {
		name string
		body map[string]any
		want int
	}{
		{"by_key", map[string]any{"metadata": map[string]any{"bucket": "b7"}, "limit": 10}, 10},
		{"first_page", map[string]any{"limit": 10}, 10},
		{"count_by_key", map[string]any{"metadata": map[string]any{"bucket": "b7"}}, 0},
	} {
		path := "/threads/search"
		if s.want == 0 {
			path = "/threads/count"
		}
		body, _ := json.Marshal(s.body)
		lat, el, e := loop(func(int) error {
			b, err := call("POST", path, body)
			if err != nil {
				return err
			}
			var v []json.RawMessage
			if s.want > 0 && (json.Unmarshal(b, &v) != nil || len(v) != s.want) {
				return fmt.Errorf("%d of %d threads", len(v), s.want)
			}
			if s.want == 0 && string(bytes.TrimSpace(b)) != "100" {
				return fmt.Errorf("%s threads match", b)
			}
			return nil
		})
		res[s.name] = map[string]any{"ops": len(lat), "per_s": rate(len(lat), el), "lat_ms": dist(lat), "cpu_ms_per_op": perOp(len(lat))}
		all.n += e.n
		for k, n := range e.by {
			for range n {
				all.add(fmt.Errorf("%s: %s", s.name, k))
			}
		}
	}
	result(res, all)
}
