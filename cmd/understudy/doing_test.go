package main

import (
	"bytes"
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
		"nothing known":  {reasons{spansRoute: {404, `{}`}, stateRoute: {403, `{}`}}, "waiting for the first words of the graph"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			c.answers.serve(mux)
			server := httptest.NewServer(mux)
			defer server.Close()
			r := &turn{}
			r.doing.Store(new((&client{base: server.URL}).doing(t.Context(), "T", "R")))
			require.Equal(t, c.want, r.waitsFor())
		})
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
