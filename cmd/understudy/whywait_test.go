package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// reasons are the answers of a server by which a command learns why it waits, by route.
type reasons map[string]struct {
	status int
	body   string
}

func (r reasons) serve(mux *http.ServeMux) {
	for route, answer := range r {
		mux.HandleFunc(route, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(answer.status)
			_, _ = io.WriteString(w, answer.body)
		})
	}
}

const (
	readyRoute   = "GET /readyz"
	schemasRoute = "GET /assistants/A/schemas"
	runRoute     = "GET /threads/T/runs/R"
	runsRoute    = "GET /threads/T/runs"
	metricsRoute = "GET /metrics"
)

// notReady is the answer of GET /readyz with a check that failed.
func notReady(name, text string) string {
	return `{"ready":false,"checks":{"draining":"ok","database":"ok","` + name + `":"` + text + `"}}`
}

// For each reason why a server does not continue there is a text with what to do; without a reason there is none.
func TestWhyWait(t *testing.T) {
	t.Parallel()
	const log = "\n  its log shows what to do; so does understudy doctor, in the folder of its langgraph.json"
	none := "failed: no worker has loaded the graphs; see the log"
	pending := reasons{runRoute: {200, `{"status":"pending"}`}, runsRoute: {200, `[]`}}
	jobs := func(all, used string) string {
		return "# HELP understudy_jobs x\nunderstudy_jobs " + all + "\nunderstudy_jobs_used " + used + "\nunderstudy_jobs_more 7\n"
	}
	for name, c := range map[string]struct {
		answers reasons
		want    string
	}{
		"no worker": {
			reasons{readyRoute: {503, notReady("workers", none)}, schemasRoute: {503, `{"detail":"No worker process can be started: No module named 'langgraph'"}`}},
			"the server is not ready: no worker has loaded the graphs: No worker process can be started: No module named 'langgraph'" + log,
		},
		"no worker, hidden schemas": {reasons{readyRoute: {503, notReady("workers", none)}, schemasRoute: {200, `{}`}}, "the server is not ready: no worker has loaded the graphs" + log},
		"broken graph": {
			reasons{readyRoute: {503, notReady("graphs", "failed: graph A does not import; see the log")}, schemasRoute: {422, `{"detail":"SyntaxError"}`}},
			"the server is not ready: graph A does not import: SyntaxError" + log,
		},
		"another broken graph": {reasons{readyRoute: {503, notReady("graphs", "failed: graph B does not import; see the log")}, schemasRoute: {200, `{}`}}, ""},
		"database":             {reasons{readyRoute: {503, notReady("database", "failed: no answer within 2s")}}, "the server is not ready: database: no answer within 2s" + log},
		"a check without text": {reasons{readyRoute: {503, notReady("gate", "failed")}}, "the server is not ready: the check of gate failed" + log},
		"starting":             {reasons{readyRoute: {503, `{"ready":false,"checks":{"starting":"failed"}}`}}, "the server is not ready: it is starting" + log},
		"ending":               {reasons{readyRoute: {503, `{"ready":false,"checks":{"draining":"failed"}}`}}, "the server is not ready: it is shutting down" + log},
		"another server":       {reasons{}, ""},
		"a worker is blocked":  {reasons{readyRoute: {200, `{"ready":true,"checks":{"workers":"ok: a worker does not answer"}}`}, runRoute: {200, `{"status":"running"}`}}, "a worker does not answer"},
		"runs":                 {reasons{readyRoute: {200, `{"ready":true,"checks":{"database":"ok"}}`}, runRoute: {200, `{"status":"running"}`}}, ""},
		"behind another run": {
			reasons{runRoute: {200, `{"status":"pending"}`}, runsRoute: {200, `[{"run_id":"Q","status":"running","created_at":"2000-01-02T03:04:05Z"}]`}},
			"the run waits for another of its thread, Q, which began 2000-01-02 03:04; understudy logs T Q shows its steps",
		},
		"no metrics": {pending, "the run waits in the queue of the server; its log may say why"},
		"full": {
			pending.and(metricsRoute, jobs("4", "4")),
			"the run waits in the queue: the server executes 4 runs at once, and as many are running; it begins when one ends, or raise --concurrency of the server",
		},
		"executes none": {
			pending.and(metricsRoute, jobs("0", "0")),
			"the run waits in the queue: this server executes none (--concurrency 0); start understudy worker with its database, or see that one runs",
		},
		"limit of the graph": {
			pending.and(metricsRoute, jobs("4", "1")),
			"the run waits in the queue, although the server could execute more; see the limit of its graph (concurrency in langgraph.json, --graph-concurrency), and the log of the server",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			c.answers.serve(mux)
			server := httptest.NewServer(mux)
			t.Cleanup(server.Close)
			require.Equal(t, c.want, (&client{base: server.URL}).whyWait(t.Context(), waited{assistant: "A", thread: "T", run: "R"}))
		})
	}
}

func (r reasons) and(route, body string) reasons {
	out := reasons{route: {http.StatusOK, body}}
	for k, v := range r {
		out[k] = v
	}
	return out
}

// A run whose ID the server has not sent yet, because nothing executes it, is the newest that waits on its thread.
func TestWhyWaitForARunThatHasNotBegun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ pending, want string }{
		"waits": {`[{"run_id":"R"}]`, "the run waits in the queue of the server; its log may say why"},
		"runs":  {`[]`, ""},
	} {
		mux := http.NewServeMux()
		reasons{readyRoute: {200, `{"ready":true}`}, runRoute: {200, `{"status":"pending"}`}}.serve(mux)
		mux.HandleFunc(runsRoute, func(w http.ResponseWriter, q *http.Request) {
			if q.FormValue("status") != "pending" {
				c.pending = "[]"
			}
			_, _ = io.WriteString(w, c.pending)
		})
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		require.Equal(t, c.want, (&client{base: server.URL}).whyWait(t.Context(), waited{thread: "T"}), name)
	}
}

// A server that accepts connections and answers nothing is a reason, too; one that is not reached is left to the request that is waited for.
func TestWhyWaitForSilence(t *testing.T) {
	t.Parallel()
	silent := &client{base: "http://" + acceptsOnly(t)}
	require.Equal(t, "the server does not say whether it is ready (no answer within 3s): see its log, and that it still runs", silent.whyWait(t.Context(), waited{}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Empty(t, silent.whyWait(ctx, waited{}))
	require.Empty(t, (&client{base: "http://127.0.0.1:1"}).whyWait(t.Context(), waited{}))
}

// Commands that wait for a server that is not ready say why, once, and then continue with its answer.
func TestCommandsSayWhyTheyWait(t *testing.T) {
	t.Parallel()
	const why = "the server is not ready: no worker has loaded the graphs"
	for name, c := range map[string]struct {
		args []string
		held string // the route whose answer comes after the reason was shown
	}{
		"chat begins": {[]string{"chat", "-m", "hi"}, "POST /assistants/search"},
		"chat runs":   {[]string{"chat", "-m", "hi"}, "POST /threads/T/runs/stream"},
		"threads":     {[]string{"threads"}, "POST /threads/search"},
		"runs":        {[]string{"runs", "T"}, runsRoute},
		"logs":        {[]string{"logs", "T"}, "GET /threads/T/events"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shown := make(chan struct{})
			notes := &noticed{at: why, then: func() { close(shown) }}
			mux := http.NewServeMux()
			for route, answer := range map[string]string{
				"POST /assistants/search": `[{"assistant_id":"A","graph_id":"g"}]`, "POST /threads": `{"thread_id":"T"}`, "GET /threads/T/state": "{}", "POST /threads/search": "[]", runsRoute: "[]",
				"POST /threads/T/runs/stream": "event: metadata\ndata: {\"run_id\":\"R\"}\n\n", runRoute: `{"status":"success"}`, "GET /threads/T/events": `{"data":[]}`,
			} {
				mux.HandleFunc(route, func(w http.ResponseWriter, q *http.Request) {
					if route == c.held {
						select {
						case <-shown:
						case <-q.Context().Done():
						}
					}
					_, _ = io.WriteString(w, answer)
				})
			}
			reasons{readyRoute: {503, notReady("workers", "failed: no worker has loaded the graphs; see the log")}}.serve(mux)
			server := httptest.NewServer(mux)
			t.Cleanup(server.Close)
			root := newRoot(io.Discard, notes)
			root.SetArgs(append(c.args, "-u", server.URL))
			require.NoError(t, root.ExecuteContext(t.Context()))
			require.Equal(t, 1, strings.Count(notes.String(), why), notes.String())
		})
	}
}

// logs --follow says why a run has no new lines, and nothing of a thread where nothing runs.
func TestFollowedRunThatWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ runs, want string }{
		"waits":        {`[{"run_id":"R","assistant_id":"A"}]`, "the run waits in the queue of the server"},
		"nothing runs": {`[]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			asked := make(chan struct{}, 10)
			mux := http.NewServeMux()
			reasons{"GET /threads/T/events": {200, `{"data":[]}`}, runRoute: {200, `{"status":"pending"}`}}.serve(mux)
			mux.HandleFunc(runsRoute, func(w http.ResponseWriter, q *http.Request) {
				if q.FormValue("status") == "pending" {
					asked <- struct{}{}
					_, _ = io.WriteString(w, c.runs)
					return
				}
				_, _ = io.WriteString(w, "[]")
			})
			server := httptest.NewServer(mux)
			t.Cleanup(server.Close)
			notes := &noticed{at: "the run waits", then: cancel}
			if c.want == "" {
				go func() { <-asked; cancel() }()
			}
			root := newRoot(io.Discard, notes)
			root.SetArgs([]string{"logs", "T", "--follow", "-u", server.URL})
			require.NoError(t, root.ExecuteContext(ctx))
			require.Equal(t, c.want != "", strings.Contains(notes.String(), "the run waits"), notes.String())
			require.Contains(t, notes.String(), c.want)
		})
	}
}

// A run with the question that its thread waits with is no success to the person who has to answer it.
func TestRunThatAsks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		thread, newest string
		asks           bool
	}{
		"asks":             {"interrupted", "success", true},
		"done":             {"idle", "success", false},
		"cancelled since":  {"interrupted", "interrupted", false},
		"failed since":     {"error", "error", false},
		"another is begun": {"busy", "running", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			reasons{
				runsRoute:        {200, `[{"run_id":"R","thread_id":"T","status":"` + c.newest + `"},{"run_id":"Q","thread_id":"T","status":"success"}]`},
				"GET /threads/T": {200, `{"thread_id":"T","status":"` + c.thread + `"}`},
			}.serve(mux)
			server := httptest.NewServer(mux)
			t.Cleanup(server.Close)
			var out, notes bytes.Buffer
			root := newRoot(&out, &notes)
			root.SetArgs([]string{"runs", "T", "-u", server.URL})
			require.NoError(t, root.ExecuteContext(t.Context()))
			status := c.newest
			if c.asks {
				status = "waits for an answer"
			}
			lines := strings.Split(out.String(), "\n")
			require.Contains(t, lines[1], "R    "+status)
			require.Contains(t, lines[2], "Q    success")
			require.Equal(t, c.asks, strings.Contains(notes.String(), "answer its question with understudy chat --thread T --url "+server.URL+"\n"), notes.String())
		})
	}
}
