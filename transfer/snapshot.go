package transfer

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
	"github.com/tinylib/msgp/msgp"

	"understudy/checkpointer"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonplus"
)

// made is the synthesized part of a checkpoint: the version of each channel and the digest of its
// value, the highest version, which version each node has seen last, and the tasks that are next.
type made struct {
	versions map[string]madeChannel
	highest  int64
	seen     map[string]madeSeen
	tasks    []madeTask
}

// madeSeen is the newest version that triggered a node.
type madeSeen struct{ channel, version string }

// madeTask is a task of a checkpoint; it has finished if it has a result.
type madeTask struct {
	name, channel string // the channel is "" for tasks that were sent
	finished      bool
}

type madeChannel struct {
	version string
	value   sum
}

// Data that the API does not show, for Notes.
const (
	lostSends   = "tasks that were sent with arguments of their own (Send) wait: the API does not show these, so that such a thread shows what it waits for, but fails when it is resumed"
	lostResults = "tasks had finished while others of the same step wait: they run again when the thread is resumed"
)

// synthesize makes a checkpoint from a snapshot of the API. Values get versions that continue from
// the parent's: a new one where the value changed. Next tasks become the channels that trigger
// them, named as in graphs of langgraph 1; interrupts become writes of their tasks. A graph
// derives the ids of tasks from the checkpoint's id, step and triggers, so they stay the same.
func synthesize(raw []byte, l Link, parent *made, head bool, lost func(string)) (*Step, *made, error) {
	snapshot := gjson.ParseBytes(raw)
	values := snapshot.Get("values")
	now := &made{versions: map[string]madeChannel{}, seen: seenAfter(parent, snapshot.Get("metadata.source").String())}
	if parent != nil {
		now.highest = parent.highest
		for k, v := range parent.versions {
			if k != channelStart && k != channelTasks && !strings.HasPrefix(k, branchPrefix) { // valid for one step
				now.versions[k] = v
			}
		}
	}
	now.highest++
	next := fmt.Sprintf("%032d.%s", now.highest, fraction(string(l.ID)))

	step := &Step{}
	step.NS, step.ID, step.Parent = l.NS, l.ID, l.Parent
	step.Metadata = json.RawMessage(snapshot.Get("metadata").Raw)
	if !snapshot.Get("metadata").IsObject() {
		step.Metadata = emptyObject
	}
	inline, updated := &jsonobj.Object{}, []string{}
	put := func(channel string, value []byte) error {
		d := digest(canonical(value))
		version := next
		if was, ok := now.versions[channel]; ok && was.value == d {
			version = was.version
		} else {
			now.versions[channel] = madeChannel{next, d}
			updated = append(updated, channel)
		}
		if inlined(value) {
			inline.Set(channel, value)
			return nil
		}
		packed, err := jsonplus.AppendState(nil, value)
		if err != nil {
			return fmt.Errorf("channel %s: %w", channel, err)
		}
		step.Blobs = append(step.Blobs, checkpointer.Blob{Channel: channel, Version: version, Type: jsonplus.TypeMsgpack, Data: packed})
		return nil
	}
	if values.IsObject() {
		var failed error
		values.ForEach(func(k, v gjson.Result) bool {
			failed = put(k.String(), []byte(v.Raw))
			return failed == nil
		})
		if failed != nil {
			return nil, nil, failed
		}
	} else if values.Exists() && values.Type != gjson.Null {
		if err := put("__root__", []byte(values.Raw)); err != nil {
			return nil, nil, err
		}
	}
	waits := map[string]bool{}
	for _, name := range snapshot.Get("next").Array() {
		waits[name.String()] = true
	}
	if sends, known, err := sendsOf(snapshot); err != nil {
		return nil, nil, err
	} else if sends != nil {
		now.versions[channelTasks] = madeChannel{next, digest(sends)}
		updated = append(updated, channelTasks)
		step.Blobs = append(step.Blobs, checkpointer.Blob{Channel: channelTasks, Version: next, Type: jsonplus.TypeMsgpack, Data: sends})
		if head && !known {
			lost(lostSends)
		}
	}
	for _, task := range snapshot.Get("tasks").Array() {
		finished := task.Get("result").Type != gjson.Null && task.Get("result").Exists()
		if err := taskOf(step, task, head, finished, put, lost); err != nil {
			return nil, nil, err
		}
		now.tasks = append(now.tasks, madeTask{name: task.Get("name").String(), channel: triggerOf(task), finished: finished})
	}
	versions := &jsonobj.Object{}
	for _, channel := range sortedChannels(now.versions) {
		versions.SetText(channel, now.versions[channel].version)
	}
	// The first step has consumed its input; without this a graph would run its first step again.
	if _, known := now.seen[channelStart]; !known && !waits[channelStart] {
		now.seen[channelStart] = madeSeen{channelStart, now.versions[channelStart].version}
	}
	seen := &jsonobj.Object{}
	for _, node := range slices.Sorted(maps.Keys(now.seen)) {
		o := &jsonobj.Object{}
		if last := now.seen[node]; last.version != "" {
			o.SetText(last.channel, last.version)
		}
		seen.Set(node, o.JSON())
	}
	seen.Set("__input__", emptyObject)
	list, err := json.Marshal(updated)
	if err != nil {
		return nil, nil, err
	}
	data := &jsonobj.Object{}
	data.Set("v", json.RawMessage("4"))
	data.SetText("ts", snapshot.Get("created_at").String())
	data.SetText("id", string(l.ID))
	data.Set("channel_values", inline.JSON())
	data.Set("channel_versions", versions.JSON())
	data.Set("versions_seen", seen.JSON())
	data.Set("updated_channels", list)
	step.Data = data.JSON()
	return step, now, nil
}

// seenAfter returns the versions that nodes have seen in a child of parent that source made. A state update without a node
// (as_node) counts as one of the node that ran last, and langgraph reads from them which that was. A loop and a new input end
// all tasks of the parent, the latter also those that wait; an update ends those that have finished.
func seenAfter(parent *made, source string) map[string]madeSeen {
	if parent == nil {
		return map[string]madeSeen{}
	}
	seen := maps.Clone(parent.seen)
	if seen == nil {
		seen = map[string]madeSeen{}
	}
	if source == "fork" {
		return seen
	}
	for _, task := range parent.tasks {
		if task.channel != "" && (task.finished || source != "update") {
			seen[task.name] = madeSeen{task.channel, parent.versions[task.channel].version}
		}
	}
	return seen
}

// triggerOf returns the channel that triggers a task; "" for one that was sent, by Send or as a call of a functional graph.
func triggerOf(task gjson.Result) string {
	switch name := task.Get("name").String(); {
	case name == channelStart:
		return channelStart
	case task.Get("path.0").String() == "__pregel_push":
		return ""
	default:
		return branchPrefix + name
	}
}

// taskOf adds the data behind a task of a snapshot: its trigger and its writes.
func taskOf(step *Step, task gjson.Result, head, finished bool, trigger func(string, []byte) error, lost func(string)) error {
	name, ident, path := task.Get("name").String(), task.Get("id").String(), task.Get("path").Array()
	switch channel := triggerOf(task); channel {
	case channelStart:
		// The input is what its task passed on.
		value := []byte("{}")
		if r := task.Get("result"); r.IsObject() {
			value = []byte(r.Raw)
		}
		if err := trigger(channelStart, value); err != nil {
			return err
		}
	case "":
	default:
		if err := trigger(channel, []byte("null")); err != nil {
			return err
		}
	}
	where := "~" + pathText(path)
	add := func(index int, channel string, data []byte) {
		step.Writes = append(step.Writes, checkpointer.Write{TaskID: ident, Index: index, Channel: channel, Type: jsonplus.TypeMsgpack, Data: data, Path: where})
	}
	if interrupts := task.Get("interrupts").Array(); len(interrupts) > 0 {
		packed := []byte{0x90 | byte(min(len(interrupts), 15))}
		if len(interrupts) > 15 {
			packed = []byte{0xdc, byte(len(interrupts) >> 8), byte(len(interrupts))}
		}
		for _, i := range interrupts {
			value, err := jsonplus.AppendState(nil, orNull(i.Get("value").Raw))
			if err != nil {
				return fmt.Errorf("interrupt of task %s: %w", name, err)
			}
			var schema []byte
			if s := i.Get("response_schema"); s.Exists() {
				if schema, err = jsonplus.AppendValue(nil, []byte(s.Raw)); err != nil {
					return fmt.Errorf("interrupt of task %s: %w", name, err)
				}
			}
			packed = jsonplus.AppendInterrupt(packed, value, i.Get("id").String(), schema)
		}
		add(-3, channelInterrupt, packed)
	}
	if e := task.Get("error"); e.Type == gjson.String {
		packed, err := jsonplus.AppendValue(nil, []byte(e.Raw))
		if err != nil {
			return fmt.Errorf("error of task %s: %w", name, err)
		}
		add(-1, channelError, packed)
	}
	if !finished {
		return nil
	}
	if head {
		// The next nodes are not shown: with only its results the graph would stop after it.
		lost(lostResults)
		return nil
	}
	index := 0
	if r := task.Get("result"); r.IsObject() {
		var failed error
		r.ForEach(func(k, v gjson.Result) bool {
			all := []gjson.Result{v}
			if more := v.Get("$writes"); more.IsArray() {
				all = more.Array()
			}
			for _, one := range all {
				var packed []byte
				if packed, failed = jsonplus.AppendState(nil, []byte(one.Raw)); failed != nil {
					return false
				}
				add(index, k.String(), packed)
				index++
			}
			return true
		})
		if failed != nil {
			return fmt.Errorf("result of task %s: %w", name, failed)
		}
	}
	if index == 0 {
		add(0, "__no_writes__", []byte{0xc0})
	}
	return nil
}

// sendsOf returns the sends whose tasks are next, as the value of their channel; nil when there
// are none. Their arguments are not shown. If they are the tool calls of the last message, as in
// agents, they are known from there; otherwise they are None, so that at least the tasks are
// visible.
func sendsOf(snapshot gjson.Result) (sends []byte, known bool, err error) {
	var names []string
	for _, task := range snapshot.Get("tasks").Array() {
		// Calls of functional tasks have a path below that of their caller.
		if path := task.Get("path").Array(); len(path) > 1 && path[0].String() == "__pregel_push" && path[1].Type == gjson.Number {
			names = append(names, task.Get("name").String())
		}
	}
	if names == nil {
		return nil, true, nil
	}
	calls := pendingCalls(snapshot.Get("values.messages").Array())
	known = len(calls) == len(names)
	sends = msgp.AppendArrayHeader(nil, uint32(len(names)))
	for i, name := range names {
		arg := msgp.AppendNil(nil)
		if known && name == names[0] {
			if arg, err = jsonplus.AppendValue([]byte{0x91}, []byte(calls[i].Raw)); err != nil {
				return nil, false, err
			}
		}
		sends = jsonplus.AppendSend(sends, name, arg)
	}
	return sends, known, nil
}

// pendingCalls returns the tool calls of the last message of a model that have no answer.
func pendingCalls(messages []gjson.Result) (calls []gjson.Result) {
	answered := map[string]bool{}
	for _, m := range slices.Backward(messages) {
		switch m.Get("type").String() {
		case "tool":
			answered[m.Get("tool_call_id").String()] = true
		case "ai", "AIMessageChunk":
			for _, c := range m.Get("tool_calls").Array() {
				if !answered[c.Get("id").String()] {
					calls = append(calls, c)
				}
			}
			return calls
		}
	}
	return nil
}

// inlined reports whether a JSON value is stored in the JSON of a checkpoint.
func inlined(value []byte) bool {
	return len(value) > 0 && value[0] != '{' && value[0] != '[' && !strings.Contains(string(value), `\u0000`)
}

func orNull(raw string) []byte {
	if raw == "" {
		return []byte("null")
	}
	return []byte(raw)
}

// pathText returns a task's path in the form that langgraph stores with writes.
func pathText(path []gjson.Result) string {
	parts := make([]string, 0, len(path))
	for _, p := range path {
		switch {
		case p.Type == gjson.Number:
			parts = append(parts, fmt.Sprintf("%010d", p.Int()))
		case p.IsBool():
			parts = append(parts, map[bool]string{true: "0000000001", false: "0000000000"}[p.Bool()]) // a bool is an int there
		case p.IsArray():
			parts = append(parts, "~"+pathText(p.Array()))
		default:
			parts = append(parts, p.String())
		}
	}
	return strings.Join(parts, ", ")
}

func sortedChannels(m map[string]madeChannel) []string {
	counts := make(map[string]int, len(m))
	for k := range m {
		counts[k] = 0
	}
	return sortedKeys(counts)
}

// fraction returns the second half of the version of a checkpoint's id: deterministic, and
// different for a fork.
func fraction(checkpoint string) string {
	h := fnv.New64a()
	h.Write([]byte(checkpoint))
	return "0." + fmt.Sprintf("%014s", strconv.FormatUint(h.Sum64()%100_000_000_000_000, 10))
}
