package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

func newRuns() *cobra.Command {
	var limit int
	var cmd *cobra.Command
	cmd = lookCommand(&cobra.Command{
		Use:   "runs THREAD",
		Short: "List the runs of a thread",
		Long:  `Lists the runs of a thread of a running server, the newest first: their status, graph, when they were created, and how long they took.`,
		Example: `  understudy runs 01a206fb-8dce-76de-9933-4f6ae92099a6
  understudy runs 01a206fb-8dce-76de-9933-4f6ae92099a6 --json`,
		Args: needArgs(1, 1, "the ID of a thread (understudy threads lists them)"),
	}, func(ctx context.Context, api *client, args []string) (answer json.RawMessage, err error) {
		if err := checkLimit(limit); err != nil {
			return nil, err
		}
		return answer, api.threadError(api.get(ctx, fmt.Sprintf("/threads/%s/runs?limit=%d", pathSegment(args[0]), limit), &answer), args[0])
	}, func(_ *client, out io.Writer, p palette, answer json.RawMessage) {
		rows := [][]string{{"RUN", "STATUS", "GRAPH", "CREATED", "TOOK"}}
		for _, r := range gjson.ParseBytes(answer).Array() {
			rows = append(rows, []string{
				r.Get("run_id").String(), r.Get("status").String(), p.printable(orNone(r.Get("metadata.graph_id").String())), ago(r.Get("created_at").String(), time.Now()),
				tookBetween(r.Get("created_at").String(), r.Get("updated_at").String(), r.Get("status").String()),
			})
		}
		if len(rows) == 1 {
			fmt.Fprintln(out, "no runs on this thread")
			return
		}
		table(out, rows)
		noteMore(cmd.ErrOrStderr(), len(rows)-1, limit, "")
	})
	cmd.Flags().IntVarP(&limit, "limit", "n", 20, "`NUMBER` of runs at most")
	return cmd
}

// tookBetween is how long a run took that is over.
func tookBetween(from, to, status string) string {
	began, err := time.Parse(time.RFC3339Nano, from)
	ended, err2 := time.Parse(time.RFC3339Nano, to)
	if err != nil || err2 != nil || status == "pending" || status == "running" {
		return "-"
	}
	return humanTime(ended.Sub(began))
}
