package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

func newState() *cobra.Command {
	checkpoint := ""
	cmd := lookCommand(&cobra.Command{
		Use:   "state THREAD",
		Short: "Show the state of a thread",
		Long: `Shows the state of a thread of a running server: its messages and other values, what would be executed next,
what failed, and the questions of interrupts that wait.`,
		Example: `  understudy state 01a206fb-8dce-76de-9933-4f6ae92099a6
  understudy state 01a206fb-8dce-76de-9933-4f6ae92099a6 --json | jq .values`,
		Args: needArgs(1, 1, "the ID of a thread (understudy threads lists them)"),
	}, func(ctx context.Context, api *client, args []string) (answer json.RawMessage, err error) {
		path := "/threads/" + pathSegment(args[0]) + "/state"
		if checkpoint != "" {
			path += "/" + pathSegment(checkpoint)
		}
		return answer, api.threadError(api.get(ctx, path, &answer), args[0])
	}, showState)
	cmd.Flags().StringVar(&checkpoint, "checkpoint", "", "`ID` of an older checkpoint (default the last)")
	return cmd
}

// showState writes a state for people.
func showState(api *client, out io.Writer, p palette, answer json.RawMessage) {
	c := &chat{palette: p, out: out, seen: map[string]bool{}}
	state := gjson.ParseBytes(answer)
	head := func(name string) { c.println(p.paint(bold, name)) }
	if state.Get("checkpoint.checkpoint_id").String() == "" && len(state.Get("values").Map()) == 0 {
		c.println("no checkpoint: no run has saved anything on this thread yet")
		return
	}
	c.println("checkpoint " + orNone(state.Get("checkpoint.checkpoint_id").String()) + ", " + state.Get("created_at").String())
	state.Get("values").ForEach(func(key, value gjson.Result) bool {
		if key.String() == "messages" && value.IsArray() {
			head(fmt.Sprintf("messages (%d)", len(value.Array())))
			for _, m := range value.Array() {
				showMessage(c, m)
			}
			return true
		}
		head(c.clean(key.String()))
		c.println("  " + strings.ReplaceAll(c.clean(cut(indented(value.Raw), 4000)), "\n", "\n  "))
		return true
	})
	if next := state.Get("next").Array(); len(next) > 0 {
		names := make([]string, len(next))
		for i, n := range next {
			names[i] = c.clean(n.String())
		}
		c.println(p.paint(bold, "next ") + strings.Join(names, ", "))
	}
	for _, task := range state.Get("tasks").Array() {
		if failed := task.Get("error"); failed.Type == gjson.String {
			c.println(p.paint(red, "✗ "+c.clean(task.Get("name").String())+" failed: "+c.clean(cut(failed.String(), 1000))))
			c.println(p.paint(dim, "its run: "+api.command("logs "+state.Get("checkpoint.thread_id").String())))
		}
	}
	for _, i := range state.Get("interrupts").Array() {
		head("waits for an answer: " + api.command("chat --thread "+state.Get("checkpoint.thread_id").String()))
		c.println("  " + strings.ReplaceAll(c.clean(indented(i.Get("value").Raw)), "\n", "\n  "))
	}
}

// showMessage writes a message after the name of its author.
func showMessage(c *chat, m gjson.Result) {
	kind := m.Get("type").String()
	if kind == "" {
		kind = m.Get("role").String()
	}
	lines := strings.Split(c.clean(cut(textOf(m.Get("content")), 2000)), "\n")
	for _, call := range m.Get("tool_calls").Array() {
		lines = append(lines, c.paint(cyan, "→ "+c.clean(call.Get("name").String())+" "+c.clean(cut(call.Get("args").Raw, 500))))
	}
	if lines[0] == "" && len(lines) > 1 {
		lines = lines[1:]
	}
	c.println("  " + c.paint(dim, fmt.Sprintf("%-6s", c.clean(kind))) + " " + strings.Join(lines, "\n         "))
}
