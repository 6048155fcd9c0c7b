package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A chat says what it waits for: the innermost of what runs, with its node; of servers that do not show it the node; and else the graph.
func TestChatSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	const (
		spansRoute = "GET /understudy/runs/R/spans"
		stateRoute = "GET /threads/T/state"
		graphRoute = "GET /assistants/A/graph"
		attempt    = `{"id":"1","parent_id":null,"kind":"attempt","name":"agent","status":"running"}`
		node       = `{"id":"1.1","parent_id":"1","kind":"node","name":"model","node":"model","status":"running"}`
	)
	for name, c := range map[string]struct {
		answers reasons
		want    string
	}{
		"a model": {
			reasons{spansRoute: {200, `{"spans":[` + attempt + `,` + node + `,{"id":"1.2","parent_id":"1.1","kind":"model","name":"gpt-4o","provider":"openai","node":"model","status":"running"}]}`}},
			"waiting for the model openai:gpt-4o (node model)",
		},
		"tools": {
			reasons{spansRoute: {200, `{"spans":[` + attempt + `,{"id":"2","parent_id":"1","kind":"tool","name":"search","node":"tools","status":"running"},` +
				`{"id":"3","parent_id":"1","kind":"tool","name":"fetch","node":"tools","status":"running"},{"id":"4","parent_id":"1","kind":"tool","name":"done","status":"success"}]}`}},
			"waiting for the tool search (node tools), the tool fetch (node tools)",
		},
		"a node":         {reasons{spansRoute: {200, `{"spans":[` + attempt + `,` + node + `]}`}}, "waiting for the node model"},
		"another server": {reasons{spansRoute: {404, `{}`}, stateRoute: {200, `{"next":["plan"]}`}}, "waiting for the node plan"},
		"its first node": {reasons{spansRoute: {200, `{"spans":[` + attempt + `]}`}, stateRoute: {200, `{"next":["__start__"]}`}, graphRoute: {200, `{"edges":[{"source":"__start__","target":"a"},{"source":"a","target":"__end__"}]}`}}, "waiting for the node a"},
		"one of several": {
			reasons{spansRoute: {404, `{}`}, stateRoute: {200, `{"next":["__start__"]}`}, graphRoute: {200, `{"edges":[{"source":"__start__","target":"a","conditional":true},{"source":"__start__","target":"b","conditional":true}]}`}},
			"waiting for the first words of the graph",
		},
		"no drawing":    {reasons{spansRoute: {404, `{}`}, stateRoute: {200, `{"next":["__start__"]}`}}, "waiting for the first words of the graph"},
		"nothing known": {reasons{spansRoute: {404, `{}`}, stateRoute: {403, `{}`}}, "waiting for the first words of the graph"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			c.answers.serve(mux)
			server := httptest.NewServer(mux)
			defer server.Close()
			r := &turn{}
			r.doing.Store(new((&client{base: server.URL}).doing(t.Context(), waited{assistant: "A", thread: "T", run: "R"})))
			require.Equal(t, c.want, r.waitsFor())
		})
	}
}

// A chat reports each further attempt of its run once, with the reason that the server gives for the end of the previous one.
func TestChatTellsOfAttempts(t *testing.T) {
	t.Parallel()
	const again = "the run is tried again, attempt "
	for events, want := range map[string]string{
		`{"data":[{"event_type":"run.retry","content":"the process running the graph died: it left with exit code 7","metadata":{"attempt":1}},{"event_type":"run.retry","content":"its server died","metadata":{"attempt":2}}]}`: again + "2: the process running the graph died: it left with exit code 7\n" + again + "3: its server died\n",
		`no log`: again + "2\n" + again + "3\n",
	} {
		mux := http.NewServeMux()
		mux.Handle("/", fakeRuns{
			start: func(w http.ResponseWriter, _ *http.Request) {
				for _, n := range []int{1, 2, 2, 3} {
					fmt.Fprintf(w, "event: metadata\ndata: {\"run_id\":\"R\",\"attempt\":%d}\n\n", n)
				}
				written(w, 5, "hello")
			},
			status: func() string { return "success" },
		}.handler())
		mux.HandleFunc("GET /threads/T/runs/R/events", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, events) })
		server := httptest.NewServer(mux)
		var notes bytes.Buffer
		root := newRoot(io.Discard, &notes)
		root.SetArgs([]string{"chat", "g", "-m", "hi", "-u", server.URL})
		require.NoError(t, root.ExecuteContext(t.Context()))
		server.Close()
		require.Equal(t, want, notes.String())
	}
}

// What a sign shows may change while it waits.
func TestSignThatChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var what atomic.Value
		what.Store("waiting for the graph")
		s := newSign(&out, func() string { return what.Load().(string) })
		time.Sleep(quietFor + time.Millisecond)
		synctest.Wait()
		what.Store("waiting for the node plan")
		time.Sleep(quietAgain)
		synctest.Wait()
		s.end()
		require.Equal(t, "waiting for the graph …\nstill waiting for the node plan, for 5s\n", out.String())
	})
}
