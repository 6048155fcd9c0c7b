package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

func newRuns() *cobra.Command {
	var limit int
	var asking int     // index of the run whose question has no answer yet; -1: none
	var delayed string // why a run has not begun, or does not continue
	var cmd *cobra.Command
	cmd = lookCommand(&cobra.Command{
		Use:   "runs THREAD",
		Short: "List the runs of a thread",
		Long: `Lists the runs of a thread of a running server, the newest first: their status, graph, when they were
created, and how long they took. The run with the question that the thread waits with "waits for an
answer"; the API, and --json, call it a success.`,
		Example: `  understudy runs 01a206fb-8dce-76de-9933-4f6ae92099a6
  understudy runs 01a206fb-8dce-76de-9933-4f6ae92099a6 --json`,
		Args: needArgs(1, 1, "the ID of a thread (understudy threads lists them)"),
	}, func(ctx context.Context, api *client, args []string) (answer json.RawMessage, err error) {
		if err := checkLimit(limit); err != nil {
			return nil, err
		}
		path := "/threads/" + pathSegment(args[0])
		if err := api.get(ctx, fmt.Sprintf("%s/runs?limit=%d", path, limit), &answer); err != nil {
			return nil, api.threadError(err, args[0])
		}
		asking = -1
		active := func(r gjson.Result) bool { return slices.Contains(activeStatuses, r.Get("status").String()) }
		switch runs := gjson.ParseBytes(answer).Array(); {
		case slices.ContainsFunc(runs, active):
			if w := api.activeOn(ctx, args[0]); w.run != "" {
				delayed = api.whyWait(ctx, w)
			}
		case len(runs) > 0 && runs[0].Get("status").String() == "success":
			var thread struct {
				Status string `json:"status"`
			}
			if err := api.get(ctx, path, &thread); err == nil && thread.Status == "interrupted" {
				asking = 0
			}
		}
		return answer, nil
	}, func(api *client, out io.Writer, p palette, answer json.RawMessage) {
		rows := [][]string{{"RUN", "STATUS", "GRAPH", "CREATED", "TOOK"}}
		thread := ""
		for i, r := range gjson.ParseBytes(answer).Array() {
			thread = r.Get("thread_id").String()
			status := r.Get("status").String()
			if i == asking {
				status = "waits for an answer"
			}
			rows = append(rows, []string{
				r.Get("run_id").String(), status, p.printable(orNone(r.Get("metadata.graph_id").String())), ago(r.Get("created_at").String(), time.Now()),
				tookBetween(r.Get("created_at").String(), r.Get("updated_at").String(), status),
			})
		}
		if len(rows) == 1 {
			fmt.Fprintln(out, "no runs on this thread")
			return
		}
		table(out, rows)
		errs := cmd.ErrOrStderr()
		noteMore(errs, len(rows)-1, limit, "")
		if asking >= 0 {
			fmt.Fprintln(errs, "answer its question with "+api.command("chat --thread "+thread))
		}
		if delayed != "" {
			fmt.Fprintln(errs, delayed)
		}
	})
	cmd.Flags().IntVarP(&limit, "limit", "n", 20, "`NUMBER` of runs at most")
	return cmd
}

// activeStatuses are those of runs that have not ended.
var activeStatuses = []string{"pending", "running"}

// tookBetween is how long a run took that is over.
func tookBetween(from, to, status string) string {
	began, err := time.Parse(time.RFC3339Nano, from)
	ended, err2 := time.Parse(time.RFC3339Nano, to)
	if err != nil || err2 != nil || slices.Contains(activeStatuses, status) {
		return "-"
	}
	return humanTime(ended.Sub(began))
}
