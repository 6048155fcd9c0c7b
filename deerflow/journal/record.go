package journal

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"understudy/deerflow/changes"
	"understudy/graph"
	"understudy/internal/jsonobj"
)

const maxText = 8192 // characters of a text in a row

// record is what is known of a run.
type record struct {
	note        func(graph.Note)
	open        []string // tasks of subagents that began
	presented   []string // artifacts, as they were presented
	produced    []string // files in outputs, by path; known after compare
	interrupted bool     // the run waits for an answer
}

func (r *record) add(kind, category string, content, metadata any) {
	n := graph.Note{Type: kind, Category: category, Content: encode(content), At: time.Now()}
	if metadata != nil {
		n.Metadata = encode(metadata)
	}
	r.note(n)
}

// encode returns the JSON of a value that has one.
func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return b
}

// read takes what is needed from an event of the graph.
func (r *record) read(e graph.Event) {
	if e.Name == "custom" {
		r.task(e.Data)
		return
	}
	gjson.ParseBytes(e.Data).ForEach(func(node, update gjson.Result) bool {
		if node.Str == "__interrupt__" {
			r.interrupted = true
		}
		for _, one := range append(update.Array(), update) { // a node may return several updates
			for _, path := range one.Get("artifacts").Array() {
				if path.Type == gjson.String && !slices.Contains(r.presented, path.Str) {
					r.presented = append(r.presented, path.Str)
				}
			}
		}
		return true
	})
}

// ends are the custom events that end a task, and the status that they mean.
var ends = map[string]string{"task_completed": "completed", "task_failed": "failed", "task_cancelled": "cancelled", "task_timed_out": "timed_out"}

// task records an event of a subagent. Others are passed over.
func (r *record) task(data json.RawMessage) {
	e := gjson.ParseBytes(data)
	task := e.Get("task_id")
	if !e.IsObject() || task.Type != gjson.String || task.Str == "" {
		return
	}
	kind := e.Get("type").String()
	switch status := ends[kind]; {
	case kind == "task_started":
		r.open = append(r.open, task.Str)
		var description *string
		if d := e.Get("description"); d.Type == gjson.String {
			description = &d.Str
		}
		r.subagent("start", task.Str, nil, "description", description)
	case kind == "task_running":
		index, m := e.Get("message_index"), e.Get("message")
		if index.Type != gjson.Number || index.Num < 0 || !m.IsObject() {
			return
		}
		n := int(index.Int())
		r.subagent("step", task.Str, &n, append([]any{"message_index", n}, step(m)...)...)
	case status != "":
		r.open = slices.DeleteFunc(r.open, func(t string) bool { return t == task.Str })
		fields := []any{"status", status}
		if m := strings.TrimSpace(e.Get("model_name").String()); m != "" {
			fields = append(fields, "model_name", m)
		}
		if u := e.Get("usage"); u.IsObject() {
			fields = append(fields, "usage", json.RawMessage(u.Raw))
		}
		for _, key := range []string{"result", "error"} {
			if v := e.Get(key); v.Exists() && v.Type != gjson.Null {
				text, cut := shortened(v.String())
				if fields = append(fields, key, text); cut {
					fields = append(fields, key+"_truncated", true)
				}
			}
		}
		r.subagent("end", task.Str, nil, fields...)
	}
}

// subagent adds a row about a task. fields are keys and values.
func (r *record) subagent(what, task string, index *int, fields ...any) {
	content, metadata := &jsonobj.Object{}, &jsonobj.Object{}
	content.SetText("task_id", task)
	for i := 0; i < len(fields); i += 2 {
		content.Set(fields[i].(string), encode(fields[i+1]))
	}
	metadata.SetText("task_id", task)
	if index != nil {
		metadata.Set("message_index", encode(*index))
	}
	r.add("subagent."+what, "subagent", content.JSON(), metadata.JSON())
}

// step describes a message of a subagent: an answer with its calls of tools, or the result of one.
func step(m gjson.Result) []any {
	text, cut := shortened(textOf(m.Get("content")))
	if m.Get("type").Str == "tool" {
		return []any{"kind", "tool", "text", text, "truncated", cut, "tool_name", json.RawMessage(orNull(m.Get("name")))}
	}
	calls := []any{}
	for _, call := range m.Get("tool_calls").Array() {
		c := &jsonobj.Object{}
		c.Set("name", json.RawMessage(orNull(call.Get("name"))))
		args := call.Get("args")
		if serialized, cut := shortened(args.Raw); cut {
			c.SetText("args", serialized)
			c.Set("args_truncated", json.RawMessage("true"))
		} else {
			c.Set("args", json.RawMessage(orNull(args)))
		}
		calls = append(calls, c.JSON())
	}
	return []any{"kind", "ai", "text", text, "truncated", cut, "tool_calls", calls}
}

func orNull(v gjson.Result) string {
	if !v.Exists() {
		return "null"
	}
	return v.Raw
}

// textOf returns the text of the content of a message, in either form.
func textOf(content gjson.Result) string {
	if !content.IsArray() {
		return content.String()
	}
	var parts []string
	for _, block := range content.Array() {
		switch {
		case block.Type == gjson.String:
			parts = append(parts, block.Str)
		case block.Get("text").Type == gjson.String:
			parts = append(parts, block.Get("text").Str)
		}
	}
	return strings.Join(parts, "\n")
}

// shortened returns the beginning of a text, and whether that is not all.
func shortened(text string) (string, bool) {
	if len(text) <= maxText || utf8.RuneCountInString(text) <= maxText {
		return text, false
	}
	n := 0
	for at := range text {
		if n == maxText {
			return text[:at], true
		}
		n++
	}
	return text, false
}

// compare records what became of the files.
func (r *record) compare(ctx context.Context, dir string, before *changes.Snapshot) error {
	after, err := changes.Take(ctx, dir, changes.Defaults)
	if err != nil {
		return err
	}
	r.produced = changes.Produced(before, after)
	if c := changes.Compare(before, after, changes.Defaults); c != nil {
		r.add("workspace_changes", "workspace", c.Text(), map[string]any{"workspace_changes": c})
	}
	return nil
}

// end records how tasks ended that did not say it, and which files were delivered.
func (r *record) end() {
	for _, task := range r.open { // their run was cancelled, or failed
		r.subagent("end", task, nil, "status", "cancelled")
	}
	o, by := &jsonobj.Object{}, &jsonobj.Object{}
	o.Set("presented", encode(len(r.presented)))
	o.Set("paths", encode(append([]string{}, r.presented...)))
	if len(r.presented) > 0 {
		by.Set("present_files", encode(r.presented))
	}
	o.Set("by_tool", by.JSON())
	if len(r.produced) > 0 {
		matched, stage := r.matched(), "not_started"
		switch {
		case len(matched) > 0:
			stage = "presented"
		case len(r.presented) > 0:
			stage = "mismatched"
		}
		o.Set("verification", json.RawMessage(`{"source":"outputs_changed","requirement":"present_files_matches_produced_output"}`))
		o.Set("produced_paths", encode(r.produced))
		o.Set("presented_paths", encode(append([]string{}, r.presented...)))
		o.Set("matched_paths", encode(matched))
		o.SetText("stage", stage)
		o.Set("satisfied", encode(len(matched) > 0))
	}
	r.add("run.delivery", "outputs", o.JSON(), nil)
}

// matched returns the produced files that were presented, by themselves or with their folder.
func (r *record) matched() []string {
	out := []string{}
	for _, file := range r.produced {
		if slices.ContainsFunc(r.presented, func(p string) bool {
			p = strings.TrimRight(p, "/")
			return p != "" && (file == p || strings.HasPrefix(file, p+"/"))
		}) {
			out = append(out, file)
		}
	}
	return out
}

func (r *record) undelivered() bool { return len(r.produced) > 0 && len(r.matched()) == 0 }
