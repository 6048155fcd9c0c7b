package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeRuns is a server with one run, R of thread T. Streams of the run begin with its metadata.
type fakeRuns struct {
	start, join http.HandlerFunc
	status      func() string
	state       string
	cancel      http.HandlerFunc
}

func (f fakeRuns) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	mux.HandleFunc("POST /assistants/search", answer(`[{"assistant_id":"A","graph_id":"g"}]`))
	mux.HandleFunc("POST /threads", answer(`{"thread_id":"T"}`))
	mux.HandleFunc("GET /threads/T/state", answer(f.state))
	mux.HandleFunc("POST /threads/T/runs/stream", func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.WriteString(w, "id: 1\nevent: metadata\ndata: {\"run_id\":\"R\"}\n\n")
		f.start(w, q)
	})
	mux.HandleFunc("GET /threads/T/runs/R", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"status":%q}`, f.status()) })
	if f.join != nil {
		mux.HandleFunc("GET /threads/T/runs/R/stream", f.join)
	}
	if f.cancel != nil {
		mux.HandleFunc("POST /threads/T/runs/R/cancel", f.cancel)
	}
	return mux
}

// piece sends a piece of the message m.
func piece(w http.ResponseWriter, event int, text string) {
	fmt.Fprintf(w, "id: %d\nevent: messages\ndata: [{\"type\":\"AIMessageChunk\",\"id\":\"m\",\"content\":%q},{}]\n\n", event, text)
	_ = http.NewResponseController(w).Flush()
}

// written sends the message m whole.
func written(w http.ResponseWriter, event int, text string) {
	fmt.Fprintf(w, "id: %d\nevent: updates\ndata: {\"node\":{\"messages\":[{\"type\":\"ai\",\"id\":\"m\",\"content\":%q}]}}\n\n", event, text)
}

// A chat gives up a stream that brings nothing new however often it is opened, and asks for it with pauses.
func TestStreamThatStaysBroken(t *testing.T) {
	t.Parallel()
	long := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: ")
		part := strings.Repeat("x", 1<<20)
		for range maxEvent>>20 + 1 {
			_, _ = io.WriteString(w, part)
		}
		_, _ = io.WriteString(w, "\n\n")
	}
	cut := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "event: messages\ndata: [{")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	gap := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "event: gap\ndata: {}\n\n")
	}
	for name, c := range map[string]struct {
		start, join http.HandlerFunc
		status      string
		joins       int32
		want        string
	}{
		"cut in an event":        {cut, cut, "running", maxFutile, "unexpected EOF"},
		"cut after the run":      {cut, cut, "success", maxFutile, "unexpected EOF"},
		"closed before the end":  {func(http.ResponseWriter, *http.Request) {}, func(http.ResponseWriter, *http.Request) {}, "running", maxFutile, "the run has not ended"},
		"always with a gap":      {cut, gap, "running", maxFutile + 1, "the run has not ended"},
		"too long an event":      {long, cut, "running", 0, "larger than 64 MiB"},
		"too long an event then": {cut, long, "running", 1, "larger than 64 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var joins atomic.Int32
			fake := fakeRuns{start: c.start, status: func() string { return c.status }, join: func(w http.ResponseWriter, q *http.Request) {
				joins.Add(1)
				c.join(w, q)
			}}
			server := httptest.NewServer(fake.handler())
			t.Cleanup(server.Close)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			root := newRoot(io.Discard, io.Discard)
			root.SetArgs([]string{"chat", "-u", server.URL, "-m", "hi"})
			err := root.ExecuteContext(ctx)
			require.ErrorContains(t, err, "the run may continue, see understudy runs T --url "+server.URL)
			require.ErrorContains(t, err, c.want)
			require.Equal(t, c.joins, joins.Load())
		})
	}
}

// Whatever of an answer is lost when its stream breaks, with a gap or without, the whole answer is shown; and nothing is shown twice when nothing is lost.
func TestAnswerWithLostPieces(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 12 {
		pieces := make([]string, 3+random.IntN(5))
		for i := range pieces {
			pieces[i] = fmt.Sprintf("w%d ", i)
		}
		answer := strings.Join(pieces, "")
		before, gap, updated := 1+random.IntN(len(pieces)-1), random.IntN(2) == 0, random.IntN(2) == 0
		next := before + random.IntN(len(pieces)-before+1) // the first piece of the second stream
		if gap && next == before {
			next++
		}
		if !gap {
			updated = true // only pieces are lost without a gap
		}
		name := fmt.Sprintf("%d pieces, %d before, from %d, gap %v, updated %v", len(pieces), before, next, gap, updated)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := false
			var from []string
			fake := fakeRuns{
				state: fmt.Sprintf(`{"values":{"messages":[{"type":"ai","id":"old","content":"old"},{"type":"human","id":"h","content":"hi"},{"type":"ai","id":"m","content":%q}]},"interrupts":[]}`, answer),
				start: func(w http.ResponseWriter, _ *http.Request) {
					for i, text := range pieces[:before] {
						piece(w, i+2, text)
					}
					panic(http.ErrAbortHandler)
				},
				status: func() string {
					if ended {
						return "success"
					}
					return "running"
				},
				join: func(w http.ResponseWriter, q *http.Request) {
					from = append(from, q.Header.Get("Last-Event-ID"))
					if gap && len(from) == 1 {
						_, _ = io.WriteString(w, "event: gap\ndata: {}\n\n")
						return
					}
					for i, text := range pieces[min(next, len(pieces)):] {
						piece(w, 100+i, text)
					}
					if updated {
						written(w, 200, answer)
					}
					ended = true
				},
			}
			server := httptest.NewServer(fake.handler())
			t.Cleanup(server.Close)
			var out, notes bytes.Buffer
			root := newRoot(&out, &notes)
			root.SetArgs([]string{"chat", "-u", server.URL, "-m", "hi"})
			require.NoError(t, root.ExecuteContext(t.Context()))
			first := strings.Join(pieces[:before], "")
			switch {
			case gap:
				require.Equal(t, first+"\n"+answer+"\n", out.String())
				require.Contains(t, notes.String(), "the server no longer has some events of the run")
				require.Equal(t, []string{fmt.Sprint(before + 1), ""}, from)
			case next > before:
				require.Equal(t, first+strings.Join(pieces[next:], "")+"\n"+answer+"\n", out.String())
			default:
				require.Equal(t, answer+"\n", out.String())
			}
		})
	}
}

// What a person has to know of a run is shown while it lasts, with where to look: its error, and that its end cannot be saved.
func TestNoticesOfRuns(t *testing.T) {
	t.Parallel()
	for event, want := range map[string]string{
		"event: error\ndata: {\"error\":\"ValueError\",\"message\":\"An internal error occurred\"}\n\n":                                "✗ ValueError: An internal error occurred\nthe error as the graph raised it: understudy state T; the log of the server shows where\n",
		"event: end_not_saved\ndata: {\"error\":\"ServiceUnavailable\",\"message\":\"its end cannot be saved: the disk is full\"}\n\n": "its end cannot be saved: the disk is full\n",
	} {
		server := httptest.NewServer(fakeRuns{
			start: func(w http.ResponseWriter, _ *http.Request) {
				written(w, 2, "hello")
				_, _ = io.WriteString(w, event)
			},
			status: func() string { return "success" },
			state:  `{"values":{"messages":[]},"tasks":[]}`,
		}.handler())
		var all bytes.Buffer
		root := newRoot(&all, &all)
		root.SetArgs([]string{"chat", "g", "-m", "hi", "-u", server.URL})
		_ = root.ExecuteContext(t.Context()) // the first one fails
		server.Close()
		require.Contains(t, strings.ReplaceAll(all.String(), " --url "+server.URL, ""), want)
	}
}

// A question that was lost is asked.
func TestLostQuestion(t *testing.T) {
	t.Parallel()
	fake := fakeRuns{
		state:  `{"values":{"messages":[]},"interrupts":[{"id":"i","value":"which?"}]}`,
		start:  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "event: gap\ndata: {}\n\n") },
		status: func() string { return "interrupted" },
	}
	server := httptest.NewServer(fake.handler())
	t.Cleanup(server.Close)
	out, err := typeInto(t, "", "chat", "-u", server.URL, "-m", "hi")
	require.NoError(t, err)
	require.Contains(t, out, "? which?\n")
}

// Ctrl-C says that a run was cancelled only when the server has done it.
func TestCancel(t *testing.T) {
	t.Parallel()
	wait := func(w http.ResponseWriter, q *http.Request) {
		piece(w, 2, "Hello")
		<-q.Context().Done()
	}
	for name, c := range map[string]struct {
		cancel    http.HandlerFunc
		cancelled bool
		note      string
	}{
		"done":    {func(http.ResponseWriter, *http.Request) {}, true, ""},
		"refused": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, false, "503"},
		"cut":     {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(fakeRuns{start: wait, status: func() string { return "running" }, cancel: c.cancel}.handler())
			t.Cleanup(server.Close)
			stop := make(chan os.Signal, 1)
			out := &noticed{at: "Hello", then: func() { stop <- os.Interrupt }}
			var notes bytes.Buffer
			chat := &chat{api: &client{base: server.URL}, assistant: "g", thread: "T", in: &scriptedLines{}, out: out, errs: &notes, seen: map[string]bool{}}
			r, err := chat.execute(t.Context(), map[string]any{}, stop)
			require.ErrorIs(t, err, context.Canceled)
			require.True(t, r.cancelled)
			require.Equal(t, c.cancelled, strings.Contains(out.String(), "cancelled"), out.String())
			require.Equal(t, !c.cancelled, strings.Contains(notes.String(), "the run may continue, see understudy runs T"), notes.String())
			require.Contains(t, notes.String(), c.note)
		})
	}
}
