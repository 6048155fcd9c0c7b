package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"understudy/internal/config"
	"understudy/internal/shell"
)

// loadingGraphs names the graphs that are about to be listed.
func loadingGraphs(graphs []config.Graph) string {
	if len(graphs) == 0 {
		return ""
	}
	ids := make([]string, len(graphs))
	for i, g := range graphs {
		ids[i] = g.ID
	}
	return fmt.Sprintf("\nLoading graphs: %s\n", strings.Join(ids, ", "))
}

// describeWithin bounds the wait for the schema of a graph.
const describeWithin = 10 * time.Second

// tryNext writes what a developer may type after the start: calls of the first graph with an input of its own schema, and the first graph that can be
// talked to.
func tryNext(ctx context.Context, out io.Writer, url string, with credentials, graphs []string, inputSchema func(context.Context, string) (json.RawMessage, error)) {
	ctx, cancel := context.WithTimeout(ctx, describeWithin)
	defer cancel()
	inputs, talks := make([]string, 0, len(graphs)), 0
	for i, graph := range graphs {
		schema, err := inputSchema(ctx, graph)
		if err != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) && ctx.Err() != nil {
			return // the server ends
		}
		if err != nil {
			schema = nil
		}
		inputs = append(inputs, shell.Inside(string(sampleInput(schema))))
		if takesMessages(schema) {
			talks = i
			break
		}
	}
	fmt.Fprint(out, "\n"+with.note)
	fmt.Fprintf(out, "Talk to it:        understudy chat %s --url %s%s\n", shell.Quote(graphs[talks]), url, with.chat)
	streams := []int{0}
	if talks > 0 {
		streams = append(streams, talks)
	}
	for _, i := range streams {
		fmt.Fprintf(out, `Stream a run:
  curl -N %[1]s/runs/stream%[4]s -H 'content-type: application/json' -d '{"assistant_id": "%[2]s",
    "input": %[3]s, "stream_mode": ["updates"]}'
`, url, graphs[i], inputs[i], with.curl)
	}
	fmt.Fprintf(out, `On a thread that remembers:
  THREAD=$(curl -s -X POST %[1]s/threads%[4]s -H 'content-type: application/json' -d '{}' | grep -o '"thread_id":"[^"]*"' | cut -d'"' -f4)
  curl %[1]s/threads/$THREAD/runs/wait%[4]s -H 'content-type: application/json' -d '{"assistant_id": "%[2]s",
    "input": %[3]s}'
Python:  from langgraph_sdk import get_client; client = get_client(url="%[1]s"%[5]s)
JS:      const client = new Client({ apiUrl: "%[1]s"%[6]s })
Docs:    %[1]s/docs

`, url, graphs[talks], inputs[talks], with.curl, with.python, with.js)
}

// credentials are what suggested calls carry on a server that authenticates; the zero value: nothing.
type credentials struct{ note, curl, chat, python, js string }

// credentialsFor returns how requests to a server authenticate: with an API key if it takes them, else with a token of the developer's own.
func credentialsFor(cfg *config.Config) credentials {
	switch {
	case cfg.Server.IgnoreAuth || !cfg.Auth.Native() && !cfg.Auth.Python.IsSet():
		return credentials{}
	case !cfg.Auth.Keys:
		return credentials{
			note: "Requests need credentials (auth in langgraph.json): export TOKEN=…\n",
			curl: ` -H "Authorization: Bearer $TOKEN"`, chat: ` --header "Authorization: Bearer $TOKEN"`,
			python: `, headers={"Authorization": "Bearer …"}`, js: `, defaultHeaders: { Authorization: "Bearer …" }`,
		}
	}
	where := ""
	switch {
	case cfg.Storage.DatabaseURL != "":
		where = " --database-url URL"
	case cfg.Storage.Data != "" && filepath.Base(cfg.Storage.Data) != ".understudy":
		where = " --data " + shell.Quote(cfg.Storage.Data)
	}
	return credentials{
		note: "Requests need an API key:  export UNDERSTUDY_API_KEY=$(understudy keys create --name me" + where + ")\n",
		curl: ` -H "x-api-key: $UNDERSTUDY_API_KEY"`, python: `, api_key="…"`, js: `, apiKey: "…"`,
	}
}
