package app

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/internal/config"
	"understudy/internal/redistest"
	"understudy/storage/postgres/migratedtest"
)

// counter is a graph that counts: once for each that it is let go on, until the channel is closed.
type counter struct {
	graph.Graph
	goOn chan struct{}
}

func (g counter) Stream(ctx context.Context, _ graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		for n := 1; ; n++ {
			select {
			case _, more := <-g.goOn:
				if !more {
					return
				}
			case <-ctx.Done():
				yield(graph.Event{}, context.Cause(ctx))
				return
			}
			if !yield(graph.Event{Name: "values", Data: fmt.Appendf(nil, `{"n":%d}`, n)}, nil) {
				return
			}
		}
	}
}

// viewer reads an event stream.
type viewer struct {
	t     *testing.T
	body  io.ReadCloser
	lines *bufio.Reader
	last  string // the id of the last event
}

// view opens a stream. Unless the answer is 200 there is none, and what was answered.
func view(t *testing.T, url, last string) (v *viewer, status int, detail string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		var said struct{ Detail string }
		require.NoError(t, json.Unmarshal(text, &said), "%s", text)
		return nil, resp.StatusCode, said.Detail
	}
	return &viewer{t: t, body: resp.Body, lines: bufio.NewReader(resp.Body), last: last}, http.StatusOK, ""
}

// next returns the data of the next `values` event, the text of a comment, or the final error.
func (v *viewer) next() (string, error) {
	v.t.Helper()
	var event, data string
	for {
		line, err := v.lines.ReadString('\n')
		if err != nil {
			return "", err
		}
		line = strings.TrimRight(line, "\r\n")
		switch key, value, _ := strings.Cut(line, ":"); {
		case key == "event":
			event = strings.TrimSpace(value)
		case key == "data":
			data = strings.TrimSpace(value)
		case key == "id":
			v.last = strings.TrimSpace(value)
		case line == "" && event == "values":
			return data, nil
		case line == "":
			event, data = "", ""
		case key == "" && !strings.Contains(value, "heartbeat"):
			return value, nil
		}
	}
}

// Redis is killed and comes back empty during a run. Its streams continue on the server that executes it. On others they say that they are interrupted and
// end, new ones are refused, and afterwards they continue where they were; nothing is missed, nothing comes twice.
func TestRedisIsKilled(t *testing.T) {
	t.Parallel()
	database, redis := migratedtest.Database(t), redistest.Start(t)
	g := counter{goOn: make(chan struct{})}
	a, b := serve(t, database, redis.URL, g), serve(t, database, redis.URL, g)
	thread, _ := call(t, http.MethodPost, a+"/threads", `{}`)["thread_id"].(string)
	run, _ := call(t, http.MethodPost, a+"/threads/"+thread+"/runs", `{"assistant_id":"slow","input":{},"stream_resumable":true}`)["run_id"].(string)
	path := "/threads/" + thread + "/runs/" + run
	v, status, _ := view(t, b+path+"/stream", "-1")
	require.Equal(t, 200, status)
	g.goOn <- struct{}{}
	got, err := v.next()
	require.NoError(t, err)
	require.Equal(t, `{"n":1}`, got)

	redis.Stop()
	g.goOn <- struct{}{} // the run continues anyway
	g.goOn <- struct{}{}
	said, err := v.next()
	require.NoError(t, err)
	require.Contains(t, said, "interrupted")
	_, err = v.next()
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "not as a run ends")
	_, status, detail := view(t, b+path+"/stream", v.last)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, detail, "interrupted")
	here, status, _ := view(t, a+path+"/stream", v.last) // a executes the run
	require.Equal(t, http.StatusOK, status)
	for _, want := range []string{`{"n":2}`, `{"n":3}`} {
		got, err := here.next()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.Equal(t, "running", call(t, http.MethodGet, b+path, "")["status"])
	joined := make(chan error, 1)
	go func() { // waiting for the end needs no stream
		resp, err := http.Get(b + path + "/join")
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			err = errors.Join(err, resp.Body.Close())
		}
		joined <- err
	}()

	redis.Restart()
	var again *viewer
	require.Eventually(t, func() bool {
		again, status, _ = view(t, b+path+"/stream", v.last)
		return status == http.StatusOK
	}, 2*time.Minute, 20*time.Millisecond)
	go func() {
		g.goOn <- struct{}{}
		close(g.goOn)
	}()
	next := func() (string, error) {
		got, err := again.next()
		if err == nil && strings.Contains(got, "interrupted") { // it may have come before Redis was asked for what it had, also for the end
			_, err = again.next()
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			again, status, _ = view(t, b+path+"/stream", again.last)
			require.Equal(t, http.StatusOK, status)
			got, err = again.next()
		}
		return got, err
	}
	for _, want := range []string{`{"n":2}`, `{"n":3}`, `{"n":4}`} {
		got, err := next()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	got, err = next()
	require.ErrorIs(t, err, io.EOF, "%s", got)
	got, err = here.next()
	require.NoError(t, err)
	require.Equal(t, `{"n":4}`, got)
	_, err = here.next()
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, <-joined)
	require.Equal(t, "success", call(t, http.MethodGet, b+path, "")["status"])
}

// Redis with TLS, a certificate that a file vouches for, and a user.
func TestRedisOverTLS(t *testing.T) {
	t.Parallel()
	redis, address, ca := redistest.StartTLS(t, "--user", "me", "on", ">secret", "~mine:*", "+@all")
	flags := map[string]string{
		"port": "0", "database-url": migratedtest.Database(t), "database-connections": "4", "redis-url": "rediss://me:secret@" + address, "redis-ca": ca,
		"redis-prefix": "mine", "stream-records": "500",
	}
	load := func() *config.Config {
		settings, _, err := config.Load(config.Source{Mode: config.Serve, Flags: flags, Lookup: func(string) (string, bool) { return "", false }})
		require.NoError(t, err)
		return settings
	}
	g := counter{goOn: make(chan struct{}, 1)}
	g.goOn <- struct{}{}
	close(g.goOn)
	url := serveWith(t, load(), g)
	thread, _ := call(t, http.MethodPost, url+"/threads", `{}`)["thread_id"].(string)
	resp, err := http.Post(url+"/threads/"+thread+"/runs/stream", "application/json", strings.NewReader(`{"assistant_id":"slow","input":{}}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), `{"n":1}`)
	keys, err := redis.Client().Keys(t.Context(), "mine:{"+thread+"}:*").Result()
	require.NoError(t, err)
	require.NotEmpty(t, keys)

	flags["redis-ca"] = filepath.Join(t.TempDir(), "none")
	_, err = New(t.Context(), Config{Settings: load()})
	require.ErrorContains(t, err, "redis-ca")
	require.NoError(t, os.WriteFile(flags["redis-ca"], []byte("nothing"), 0o600))
	_, err = New(t.Context(), Config{Settings: load()})
	require.ErrorContains(t, err, "no PEM certificate")
}
