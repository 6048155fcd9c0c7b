package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// restarted is a server at one address that is stopped and started again.
type restarted struct {
	t       *testing.T
	mu      sync.Mutex
	address string
	handler http.Handler
	server  *http.Server
	ended   chan struct{}
}

func (r *restarted) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.address == "" {
		r.address = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", r.address)
	if err != nil {
		r.t.Error(err)
		return
	}
	r.address, r.server, r.ended = listener.Addr().String(), &http.Server{Handler: r.handler}, make(chan struct{}) //nolint:gosec // a test
	go func() {
		defer close(r.ended)
		_ = r.server.Serve(listener)
	}()
}

// kill cuts the open connections.
func (r *restarted) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.server.Close()
	<-r.ended
}

// stop lets the requests end that are open.
func (r *restarted) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.server.Shutdown(r.t.Context())
	<-r.ended
}

// noticed is a writer that calls back when a text was written.
type noticed struct {
	mu   sync.Mutex
	text bytes.Buffer
	at   string
	then func()
}

func (n *noticed) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text.Write(p)
	if n.then != nil && strings.Contains(n.text.String(), n.at) {
		go n.then()
		n.then = nil
	}
	return len(p), nil
}

func (n *noticed) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// A chat continues when the server restarts while the answer comes: killed, or after the stream was closed in order. It says so once, next to the answer, and repeats nothing.
func TestChatOverARestart(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{true, false} {
		s := &restarted{t: t}
		var statuses, last []string
		fake := fakeRuns{
			start: func(w http.ResponseWriter, q *http.Request) {
				body, _ := io.ReadAll(q.Body)
				assert.Contains(t, string(body), `"stream_resumable":true`)
				piece(w, 2, "Hello ")
				// It is back when the chat has noticed that.
				if killed {
					go s.kill()
					<-q.Context().Done()
					panic(http.ErrAbortHandler)
				}
				ended := s.ended
				go s.stop()
				<-ended
			},
			status: func() string {
				statuses = append(statuses, "running")
				if len(last) > 0 {
					statuses[len(statuses)-1] = "success"
				}
				return statuses[len(statuses)-1]
			},
			join: func(w http.ResponseWriter, q *http.Request) {
				last = append(last, q.Header.Get("Last-Event-ID"))
				piece(w, 3, "again")
			},
		}
		s.handler = fake.handler()
		s.start()
		var out bytes.Buffer
		notes := &noticed{at: "waiting for it", then: func() { s.start() }}
		root := newRoot(&out, notes)
		root.SetArgs([]string{"chat", "-u", "http://" + s.address, "-m", "hi"})
		require.NoError(t, root.ExecuteContext(t.Context()))
		require.Equal(t, []string{"2"}, last)
		require.Equal(t, []string{"running", "success"}, statuses)
		require.Equal(t, "Hello again\n", out.String())
		require.Equal(t, fmt.Sprintf("http://%s does not answer; waiting for it, Ctrl-C ends\nthe server answers again\n", s.address), notes.String())
		s.kill()
	}
}

// logs --follow waits for a server that restarts, and continues after the last event.
func TestLogsOverARestart(t *testing.T) {
	t.Parallel()
	s := &restarted{t: t}
	mux := http.NewServeMux()
	s.handler = mux
	ctx, end := context.WithCancel(t.Context())
	var asked []string
	mux.HandleFunc("GET /threads/T/events", func(w http.ResponseWriter, q *http.Request) {
		after := q.URL.Query().Get("after_seq")
		asked = append(asked, after)
		if after == "0" {
			fmt.Fprint(w, `{"data":[{"seq":1,"event_type":"one","content":{}}],"has_more":false}`)
			_ = http.NewResponseController(w).Flush()
			go s.kill()
			return
		}
		if after == "2" {
			end()
			return
		}
		fmt.Fprint(w, `{"data":[{"seq":2,"event_type":"two","content":{}}],"has_more":false}`)
	})
	s.start()
	var out bytes.Buffer
	notes := &noticed{at: "waiting for it", then: func() { s.start() }}
	root := newRoot(&out, notes)
	root.SetArgs([]string{"logs", "T", "--follow", "-u", "http://" + s.address})
	require.NoError(t, root.ExecuteContext(ctx))
	require.Equal(t, []string{"0", "1", "2"}, asked)
	require.Contains(t, out.String(), "two")
	require.Equal(t, fmt.Sprintf("http://%s does not answer; waiting for it, Ctrl-C ends\nthe server answers again\n", s.address), notes.String())
	s.kill()
}

// A server that was never there is an error at once, with what to do.
func TestNoServerAtAll(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"chat", "-m", "hi"}, {"logs", "T", "--follow"}} {
		_, err := execute(t, append(args, "-u", "http://127.0.0.1:1")...)
		require.ErrorContains(t, err, "start a server with `understudy dev`")
	}
	_, err := execute(t, "chat", "-m", "", "-u", "http://127.0.0.1:1")
	require.ErrorContains(t, err, "--message is empty")
}

// What commands leave out, or cannot do, they say.
func TestCommandsSayWhatTheyDo(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`knows bash, zsh, fish and powershell, not "tcsh"`: {"completion", "tcsh"},
		"name a file, such as --to checkpoints.sqlite":     {"export", "--to", "-"},
	} {
		_, err := execute(t, args...)
		require.ErrorContains(t, err, want)
	}
	out, err := execute(t, "__complete", "threads", "--status", "")
	require.NoError(t, err)
	require.Contains(t, out, "interrupted\n")

	var shown bytes.Buffer
	state := `{"values":{"n":1},"next":["boom"],"tasks":[{"name":"boom","error":"ValueError('no')"},{"name":"fine","error":null}],"checkpoint":{"thread_id":"T","checkpoint_id":"C"}}`
	showState(&client{base: "http://x"}, &shown, colorsOf(&shown), []byte(state))
	require.Contains(t, shown.String(), "✗ boom failed: ValueError('no')\nits run: understudy logs T\n")
	require.NotContains(t, shown.String(), "fine failed")
}

// What made a run fail is shown where the client of the run read that an internal error occurred: at the end of the log, unless a later run is there.
func TestLogsShowWhatFailed(t *testing.T) {
	t.Parallel()
	const of = `{"values":{},"metadata":{"run_id":"R"},"tasks":[{"name":"boom","error":"ValueError('no\\nroom')"},{"name":"fine","error":null}]}`
	for name, c := range map[string]struct{ events, state, want string }{
		"the last run":  {`{"event_type":"run.error","run_id":"R","content":"ValueError: An internal error occurred"}`, of, "✗ boom failed: ValueError('no\\nroom')\nwhat it had: understudy state T\n"},
		"an older one":  {`{"event_type":"run.error","run_id":"Q","content":"TimeoutError"}`, of, ""},
		"one that ends": {`{"event_type":"run.end","run_id":"R","content":{}}`, of, ""},
		"no checkpoint": {`{"event_type":"run.error","run_id":"R","content":"GraphNotFound"}`, `{"values":{},"tasks":[]}`, ""},
	} {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /threads/T/events", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"data":[`+c.events+`],"has_more":false}`)
		})
		mux.HandleFunc("GET /threads/T/state", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.state) })
		mux.HandleFunc("GET /threads/T", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"status":"error"}`) })
		s := httptest.NewServer(mux)
		out, err := execute(t, "logs", "T", "-u", s.URL)
		s.Close()
		require.NoError(t, err, name)
		_, after, _ := strings.Cut(strings.ReplaceAll(out, " --url "+s.URL, ""), "\n")
		require.Equal(t, c.want, after, name)
	}
}

// A graph that keeps its result next to messages shows it when its run ends without a message; else messages are enough.
func TestResultNextToMessages(t *testing.T) {
	t.Parallel()
	for updates, want := range map[string]string{
		`{"send":{"status":"sent"}}`: "send: {\"status\":\"sent\"}\n",
		`{"send":{"status":"sent","messages":[{"type":"ai","id":"1","content":"done"}]}}`: "done\n",
	} {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /assistants/search", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `[{"assistant_id":"A","graph_id":"g"}]`)
		})
		mux.HandleFunc("POST /threads", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"thread_id":"T"}`) })
		mux.HandleFunc("POST /threads/T/runs/stream", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "event: updates\ndata: %s\n\n", updates)
		})
		server := httptest.NewServer(mux)
		out, err := execute(t, "chat", "-u", server.URL, "-m", "hi")
		server.Close()
		require.NoError(t, err)
		require.Equal(t, want, out)
	}
}
