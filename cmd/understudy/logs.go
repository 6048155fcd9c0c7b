package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"

	"understudy/eventstore"
	"understudy/internal/loop"
)

func newLogs() *cobra.Command {
	var follow, asJSON bool
	cmd := &cobra.Command{
		Use:   "logs THREAD [RUN]",
		Short: "Show what happened on a thread",
		Long: `Shows the log of a thread of a running server, or of one of its runs: messages, calls of tools, how runs began and ended, their
errors, and crashes after which they were tried again. --follow continues with new lines.`,
		Example: `  understudy logs 01a206fb-8dce-76de-9933-4f6ae92099a6 --follow
  understudy logs 01a206fb-8dce-76de-9933-4f6ae92099a6 01a206fb-8dde-719e-a972-f8f56bca4bfa
  understudy logs 01a206fb-8dce-76de-9933-4f6ae92099a6 --json | jq -c .content`,
		Args: needArgs(1, 2, "the ID of a thread (understudy threads lists them)"),
	}
	cmd.Flags().SortFlags = false
	server := serverFlags(cmd)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow new lines until Ctrl-C")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := server()
		if err != nil {
			return err
		}
		path := "/threads/" + pathSegment(args[0])
		if len(args) == 2 {
			path += "/runs/" + pathSegment(args[1])
		}
		out := cmd.OutOrStdout()
		c := &chat{palette: colorsOf(out), out: out}
		empty, failed := true, ""
		note := func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), text) }
		asking := waitSignWhy(cmd.Context(), cmd.ErrOrStderr(), always("asking "+api.base), func(ctx context.Context) string { return api.whyWait(ctx, waited{}) })
		defer asking.end()
		err = eachEvent(cmd.Context(), api, path+"/events", args[0], follow, note, asking.end, func(e gjson.Result) {
			empty = false
			if asJSON {
				fmt.Fprintln(out, e.Raw)
				return
			}
			c.println(c.paint(dim, clockOf(e.Get("created_at").String())) + " " + describeEvent(c, e))
			if e.Get("event_type").String() != eventstore.TypeRunError {
				return
			}
			if failed = e.Get("run_id").String(); follow {
				err := showFailures(cmd.Context(), c, api, args[0], failed)
				if err != nil {
					note(err.Error())
				}
			}
		})
		if err == nil && failed != "" && !asJSON && !follow {
			err = showFailures(cmd.Context(), c, api, args[0], failed)
		}
		switch {
		case err != nil || asJSON:
			return err
		case empty:
			fmt.Fprintln(out, "nothing has happened here yet")
		case !follow && len(args) == 1:
			return showQuestions(cmd.Context(), c, api, args[0])
		}
		return nil
	}
	return cmd
}

// showFailures writes the errors of the tasks that a thread stopped at, if a run stopped there. They have what clients of the run may not see.
func showFailures(ctx context.Context, c *chat, api *client, thread, run string) error {
	var answer json.RawMessage
	if err := api.get(ctx, "/threads/"+pathSegment(thread)+"/state", &answer); err != nil {
		return api.threadError(err, thread)
	}
	state := gjson.ParseBytes(answer)
	if by := state.Get("metadata.run_id").String(); by != "" && by != run {
		return nil
	}
	for _, task := range state.Get("tasks").Array() {
		if failed := task.Get("error"); failed.Type == gjson.String {
			c.println(c.paint(red, "✗ "+c.clean(task.Get("name").String())+" failed: ") + eventText(c, failed.String()))
			c.println(c.paint(dim, "what it had: "+api.command("state "+thread)))
		}
	}
	return nil
}

// showQuestions writes what the last run of a thread asks, for which its log has an end with success.
func showQuestions(ctx context.Context, c *chat, api *client, thread string) error {
	var answer json.RawMessage
	if err := api.get(ctx, "/threads/"+pathSegment(thread), &answer); err != nil {
		return api.threadError(err, thread)
	}
	t := gjson.ParseBytes(answer)
	if t.Get("status").String() != "interrupted" {
		return nil
	}
	t.Get("interrupts").ForEach(func(_, asked gjson.Result) bool {
		for _, i := range asked.Array() {
			value := i.Get("value")
			c.println(c.paint(yellow, "waits for an answer: ") + eventText(c, cmp.Or(value.Get("question").String(), value.String())))
		}
		return true
	})
	c.println(c.paint(dim, "answer it: "+api.command("chat --thread "+thread)))
	return nil
}

// eventText is a text on one line, shortened.
func eventText(c *chat, s string) string { return strings.ReplaceAll(c.clean(cut(s, 300)), "\n", " ") }

// eachEvent reads the events of a thread or run, page by page. With follow it waits for new ones, also while the server restarts, which it notes, as it does why a run
// has none. began is called after the first answer.
func eachEvent(ctx context.Context, api *client, path, thread string, follow bool, note func(string), began func(), show func(gjson.Result)) error {
	after, shown, ask := int64(0), "", time.Now().Add(reasonAfter)
	for answered := false; ; answered = true {
		var page json.RawMessage
		read := func() error { return api.get(ctx, fmt.Sprintf("%s?limit=1000&after_seq=%d", path, after), &page) }
		err := api.patiently(ctx, note, func(err error) bool { return follow && answered && outage(err) }, read)
		if ctx.Err() != nil && follow {
			return nil
		}
		var refused *statusError
		if errors.As(err, &refused) && !refused.page && refused.status == http.StatusNotFound && refused.detail == noRoute {
			return fmt.Errorf("%s keeps no log of threads: only understudy does", api.base)
		}
		if err != nil {
			return api.threadError(err, thread)
		}
		began()
		for _, e := range gjson.GetBytes(page, "data").Array() {
			after = e.Get("seq").Int()
			show(e)
			shown, ask = "", time.Now().Add(reasonAfter)
		}
		switch {
		case gjson.GetBytes(page, "has_more").Bool():
			continue
		case !follow:
			return nil
		case time.Now().After(ask):
			ask = time.Now().Add(stillEvery)
			if w := api.activeOn(ctx, thread); w.run != "" {
				if text := api.whyWait(ctx, w); text != "" && text != shown && ctx.Err() == nil {
					shown = text
					note(text)
				}
			}
		}
		if !loop.Sleep(ctx, followEvery) {
			return nil
		}
	}
}

// describeEvent is an event on one line.
func describeEvent(c *chat, e gjson.Result) string {
	content, kind := e.Get("content"), e.Get("event_type").String()
	line := func(s string) string { return eventText(c, s) }
	switch {
	case e.Get("category").String() == "message":
		text := line(textOf(content.Get("content")))
		for _, call := range content.Get("tool_calls").Array() {
			text += c.paint(cyan, " → "+line(call.Get("name").String()+" "+call.Get("args").Raw))
		}
		return c.paint(bold, fmt.Sprintf("%-6s", line(content.Get("type").String()))) + " " + strings.TrimSpace(text)
	case kind == eventstore.TypeSummarize:
		return c.paint(dim, fmt.Sprintf("%d messages condensed: ", content.Get("replaced_count").Int())) + line(content.Get("summary").String())
	case kind == "run.start":
		return c.paint(blue, "run "+e.Get("run_id").String()) + " of " + line(content.Get("chain").String()) + " begins"
	case kind == "run.end":
		return c.paint(blue, "run "+e.Get("run_id").String()) + " ends: " + e.Get("metadata.status").String() +
			fmt.Sprintf(", %d tokens in, %d out", content.Get("input_tokens").Int(), content.Get("output_tokens").Int())
	case kind == "run.retry":
		return c.paint(blue, "run "+e.Get("run_id").String()) + " " + c.paint(yellow, "is tried again: "+line(content.String()))
	case kind == "run.error":
		return c.paint(blue, "run "+e.Get("run_id").String()) + " " + c.paint(red, "fails: "+line(content.String()))
	}
	return line(kind + " " + content.Raw)
}

func clockOf(text string) string {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	return at.Local().Format("01-02 15:04:05")
}

// pathSegment escapes what a person wrote for a path.
func pathSegment(s string) string { return url.PathEscape(s) }
