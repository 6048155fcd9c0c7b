package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

var threadStatuses = []string{"idle", "busy", "interrupted", "error"}

func newThreads() *cobra.Command {
	var limit int
	var status, graph string
	var cmd *cobra.Command
	cmd = lookCommand(&cobra.Command{
		Use:   "threads",
		Short: "List the threads of a server",
		Long:  `Lists the threads of a running server, the last changed first: their status, graph, and when they changed.`,
		Example: `  understudy threads
  understudy threads --status interrupted --graph agent
  understudy threads --json --limit 1000 | jq -r '.[].thread_id'`,
		Args: noArgs,
	}, func(ctx context.Context, api *client, _ []string) (answer json.RawMessage, err error) {
		if err := checkLimit(limit); err != nil {
			return nil, err
		}
		if status != "" && !slices.Contains(threadStatuses, status) {
			return nil, usageError{fmt.Errorf("--status %q is none of %s", status, strings.Join(threadStatuses, ", "))}
		}
		body := map[string]any{
			"limit": limit, "sort_by": "updated_at", "sort_order": "desc", "select": []string{"thread_id", "status", "metadata", "created_at", "updated_at", "interrupts"},
		}
		if status != "" {
			body["status"] = status
		}
		if graph != "" {
			body["metadata"] = map[string]any{"graph_id": graph}
		}
		err = api.post(ctx, "/threads/search", body, &answer)
		if err == nil && graph != "" && len(gjson.ParseBytes(answer).Array()) == 0 {
			return answer, checkGraph(ctx, api, graph)
		}
		return answer, err
	}, func(api *client, out io.Writer, p palette, answer json.RawMessage) {
		rows := [][]string{{"THREAD", "STATUS", "GRAPH", "CHANGED"}}
		for _, t := range gjson.ParseBytes(answer).Array() {
			rows = append(rows, []string{
				t.Get("thread_id").String(), t.Get("status").String(), p.printable(orNone(t.Get("metadata.graph_id").String())), ago(t.Get("updated_at").String(), time.Now()),
			})
		}
		if len(rows) == 1 {
			switch {
			case status != "" && graph != "":
				fmt.Fprintf(out, "no threads of graph %s with status %s\n", graph, status)
			case status != "":
				fmt.Fprintf(out, "no threads with status %s\n", status)
			case graph != "":
				fmt.Fprintf(out, "no threads of graph %s; begin one: %s\n", graph, api.command("chat "+graph))
			default:
				fmt.Fprintln(out, "no threads; begin one: "+api.command("chat"))
			}
			return
		}
		table(out, rows)
		noteMore(cmd.ErrOrStderr(), len(rows)-1, limit, ", --status and --graph narrow the list")
	})
	cmd.Flags().IntVarP(&limit, "limit", "n", 20, "`NUMBER` of threads at most")
	cmd.Flags().StringVar(&status, "status", "", "`STATUS`: idle, busy, interrupted or error (default any)")
	complete(cmd, "status", threadStatuses)
	cmd.Flags().StringVar(&graph, "graph", "", "`NAME` of the graph (default any)")
	completeBy(cmd, "graph", completeGraphs)
	return cmd
}
