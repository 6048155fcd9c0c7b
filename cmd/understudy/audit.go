package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"understudy/access/audit"
	"understudy/internal/app/moving"
	"understudy/internal/loop"
)

func newAudit() *cobra.Command {
	var q audit.Query
	var since string
	var follow, asJSON bool
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show changes of API keys, sign-ins that failed, and denied access",
		Long: `Shows the audit log in the data folder or the database of --database-url, also while a server runs: the newest entries, the oldest of them
first. Equal refusals within a second are one entry with a count. Entries hold no credentials.`,
		Example: `  understudy audit --since 24h
  understudy audit --event sign-in.failed --source 203.0.113.7
  understudy audit --identity ada --limit 1000
  understudy audit --follow --json | jq -c 'select(.count > 10)'`,
		Args: noArgs,
	}
	keysCommand(cmd, func(now time.Time) error {
		switch {
		case q.Event != "" && !slices.Contains(audit.Events, q.Event):
			return misused(cmd, "--event %q is none; write one of %s", q.Event, strings.Join(audit.Events, ", "))
		case q.Limit < 1 || q.Limit > maxAudit:
			return misused(cmd, "--limit is 1 to %d", maxAudit)
		}
		if since != "" {
			end, err := endOf(since, now)
			if err != nil {
				return misused(cmd, "--since %q is no duration; write one such as 12h or 90d", since)
			}
			q.Since = now.Add(now.Sub(end))
		}
		return nil
	}, func(ctx context.Context, log moving.Keys, _ []string) error {
		return showAudit(ctx, cmd.OutOrStdout(), log, q, follow, asJSON)
	})
	cmd.Flags().StringVar(&q.Event, "event", "", "`EVENT`: "+strings.Join(audit.Events, ", "))
	complete(cmd, "event", audit.Events)
	cmd.Flags().StringVar(&q.Identity, "identity", "", "`IDENTITY` that acted")
	cmd.Flags().StringVar(&q.Source, "source", "", "`ADDRESS` of the peer, or \"command line\"")
	cmd.Flags().StringVar(&since, "since", "", "`DURATION` before now, such as 12h or 90d (default any time)")
	cmd.Flags().IntVar(&q.Limit, "limit", 100, "`N` newest entries")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow new entries until Ctrl-C")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line")
	return cmd
}

const maxAudit = 100_000

// shownEntry is an entry as JSON.
type shownEntry struct {
	ID       int64  `json:"id"`
	At       string `json:"at"`
	Event    string `json:"event"`
	Identity string `json:"identity,omitempty"`
	Source   string `json:"source,omitempty"`
	Resource string `json:"resource,omitempty"`
	Outcome  string `json:"outcome"`
	Detail   string `json:"detail,omitempty"`
	Count    int    `json:"count"`
}

// showAudit prints the entries of a query, and with follow those that come.
func showAudit(ctx context.Context, out io.Writer, log audit.Store, q audit.Query, follow, asJSON bool) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	plain := palette(false)
	for head := !asJSON; ; {
		list, err := log.Audit(ctx, q)
		if err != nil {
			return err
		}
		var rows [][]string
		for i := range list {
			e := &list[i]
			q.After = e.ID
			if asJSON {
				if err := enc.Encode(shownEntry{e.ID, e.At.UTC().Format(time.RFC3339Nano), e.Event, e.Identity, e.Source, e.Resource, e.Outcome, e.Detail, e.Count}); err != nil {
					return err
				}
				continue
			}
			count := ""
			if e.Count > 1 {
				count = "×" + strconv.Itoa(e.Count)
			}
			rows = append(rows, []string{
				e.At.Local().Format("2006-01-02 15:04:05"), e.Event, plain.printable(e.Identity), plain.printable(e.Source), plain.printable(e.Resource), e.Outcome, count, plain.printable(e.Detail),
			})
		}
		if head && (len(rows) > 0 || follow) {
			rows = slices.Insert(rows, 0, []string{"TIME", "EVENT", "IDENTITY", "SOURCE", "RESOURCE", "OUTCOME", "COUNT", "DETAIL"})
			head = false
		}
		table(out, rows)
		switch {
		case !follow && len(list) == 0 && !asJSON:
			fmt.Fprintln(out, "no entries")
			return nil
		case !follow:
			return nil
		case len(list) == q.Limit && q.After > 0:
			continue
		}
		if !loop.Sleep(ctx, followEvery) {
			return nil
		}
	}
}
