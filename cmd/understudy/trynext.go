package main

import (
	"fmt"
	"strings"

	"understudy/internal/config"
)

// tryNext is what a developer may type after the start, for the first graph of the file.
func tryNext(url string, graphs []config.Graph) string {
	if len(graphs) == 0 {
		return ""
	}
	ids := make([]string, len(graphs))
	for i, g := range graphs {
		ids[i] = g.ID
	}
	return fmt.Sprintf(`
Loading graphs: %[3]s

Stream a run:
  curl -N %[1]s/runs/stream -H 'content-type: application/json' -d '{"assistant_id": "%[2]s",
    "input": {"messages": [{"role": "user", "content": "What is 6 times 7?"}]}, "stream_mode": ["updates"]}'
On a thread that remembers:
  THREAD=$(curl -s -X POST %[1]s/threads -H 'content-type: application/json' -d '{}' | grep -o '"thread_id":"[^"]*"' | cut -d'"' -f4)
  curl %[1]s/threads/$THREAD/runs/wait -H 'content-type: application/json' -d '{"assistant_id": "%[2]s",
    "input": {"messages": [{"role": "user", "content": "Hello"}]}}'
Python:  from langgraph_sdk import get_client; client = get_client(url="%[1]s")
JS:      const client = new Client({ apiUrl: "%[1]s" })
Docs:    %[1]s/docs

`, url, ids[0], strings.Join(ids, ", "))
}
