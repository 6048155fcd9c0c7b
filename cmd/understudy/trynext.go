package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"understudy/internal/config"
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
func tryNext(ctx context.Context, out io.Writer, url string, graphs []string, inputSchema func(context.Context, string) (json.RawMessage, error)) {
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
		inputs = append(inputs, shellQuoted(string(sampleInput(schema))))
		if takesMessages(schema) {
			talks = i
			break
		}
	}
	fmt.Fprintf(out, "\nTalk to it:        understudy chat %s --url %s\n", graphs[talks], url)
	streams := []int{0}
	if talks > 0 {
		streams = append(streams, talks)
	}
	for _, i := range streams {
		fmt.Fprintf(out, `Stream a run:
  curl -N %[1]s/runs/stream -H 'content-type: application/json' -d '{"assistant_id": "%[2]s",
    "input": %[3]s, "stream_mode": ["updates"]}'
`, url, graphs[i], inputs[i])
	}
	fmt.Fprintf(out, `On a thread that remembers:
  THREAD=$(curl -s -X POST %[1]s/threads -H 'content-type: application/json' -d '{}' | grep -o '"thread_id":"[^"]*"' | cut -d'"' -f4)
  curl %[1]s/threads/$THREAD/runs/wait -H 'content-type: application/json' -d '{"assistant_id": "%[2]s",
    "input": %[3]s}'
Python:  from langgraph_sdk import get_client; client = get_client(url="%[1]s")
JS:      const client = new Client({ apiUrl: "%[1]s" })
Docs:    %[1]s/docs

`, url, graphs[talks], inputs[talks])
}

// shellQuoted returns text for the inside of single quotes of a shell.
func shellQuoted(s string) string { return strings.ReplaceAll(s, "'", `'\''`) }
