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
	s := synthesis{snapshot: gjson.ParseBytes(raw), head: head, lost: lost, step: &Step{}, inline: &jsonobj.Object{}, updated: []string{}}
	s.follow(l, parent)
	for _, add := range []func() error{s.addValues, s.addSends, s.addTasks} {
		if err := add(); err != nil {
			return nil, nil, err
		}
	}
	s.seeStart()
	if err := s.seal(); err != nil {
		return nil, nil, err
	}
	return s.step, s.made, nil
}

// synthesis is a checkpoint while it is made.
type synthesis struct {
	snapshot gjson.Result
	head     bool         // it is the newest of its namespace
	lost     func(string) // is called with what the API does not show
	step     *Step
	made     *made

	next    string          // the version of what changes
	inline  *jsonobj.Object // values that are stored in the checkpoint itself, by channel
	updated []string        // channels that changed
}

// follow begins with what the parent has, if there is one.
func (s *synthesis) follow(l Link, parent *made) {
	metadata := s.snapshot.Get("metadata")
	s.made = &made{versions: map[string]madeChannel{}, seen: seenAfter(parent, metadata.Get("source").String())}
	if parent != nil {
		s.made.highest = parent.highest
		for k, v := range parent.versions {
			if k != channelStart && k != channelTasks && !strings.HasPrefix(k, branchPrefix) { // valid for one step
				s.made.versions[k] = v
			}
		}
	}
	s.made.highest++
	s.next = fmt.Sprintf("%032d.%s", s.made.highest, fraction(string(l.ID)))
	s.step.NS, s.step.ID, s.step.Parent = l.NS, l.ID, l.Parent
	s.step.Metadata = emptyObject
	if metadata.IsObject() {
		s.step.Metadata = json.RawMessage(metadata.Raw)
	}
}

// put sets the value of a channel, in JSON.
func (s *synthesis) put(channel string, value []byte) error {
	d := digest(canonical(value))
	version := s.next
	if was, ok := s.made.versions[channel]; ok && was.value == d {
		version = was.version
	} else {
		s.change(channel, d)
	}
	if inlined(value) {
		s.inline.Set(channel, value)
		return nil
	}
	packed, err := jsonplus.AppendState(nil, value)
	if err != nil {
		return fmt.Errorf("channel %s: %w", channel, err)
	}
	s.store(channel, version, packed)
	return nil
}

// change gives a channel its next version.
func (s *synthesis) change(channel string, value sum) {
	s.made.versions[channel] = madeChannel{s.next, value}
	s.updated = append(s.updated, channel)
}

// store adds the value of a channel at a version to what is stored outside the checkpoint itself.
func (s *synthesis) store(channel, version string, packed []byte) {
	s.step.Blobs = append(s.step.Blobs, checkpointer.Blob{Channel: channel, Version: version, Type: jsonplus.TypeMsgpack, Data: packed})
}

func (s *synthesis) addValues() (err error) {
	values := s.snapshot.Get("values")
	if !values.IsObject() {
		if values.Exists() && values.Type != gjson.Null {
			return s.put("__root__", []byte(values.Raw))
		}
		return nil
	}
	values.ForEach(func(k, v gjson.Result) bool {
		err = s.put(k.String(), []byte(v.Raw))
		return err == nil
	})
	return err
}

func (s *synthesis) addSends() error {
	sends, known, err := sendsOf(s.snapshot)
	if err != nil || sends == nil {
		return err
	}
	s.change(channelTasks, digest(sends))
	s.store(channelTasks, s.next, sends)
	if s.head && !known {
		s.lost(lostSends)
	}
	return nil
}

// addTasks adds the data behind the tasks that are next: their triggers and their writes.
func (s *synthesis) addTasks() error {
	for _, task := range s.snapshot.Get("tasks").Array() {
		t := madeTask{name: task.Get("name").String(), channel: triggerOf(task), finished: task.Get("result").Exists() && task.Get("result").Type != gjson.Null}
		if err := s.trigger(task, t.channel); err != nil {
			return err
		}
		w := taskWrites{step: s.step, task: task.Get("id").String(), path: "~" + pathText(task.Get("path").Array())}
		err := w.addInterrupts(task.Get("interrupts").Array())
		if err == nil {
			err = w.addError(task.Get("error"))
		}
		switch {
		case err != nil || !t.finished:
		case s.head:
			// The next nodes are not shown: with only its results the graph would stop after it.
			s.lost(lostResults)
		default:
			err = w.addResult(task.Get("result"))
		}
		if err != nil {
			return fmt.Errorf("task %s: %w", t.name, err)
		}
		s.made.tasks = append(s.made.tasks, t)
	}
	return nil
}

// trigger sets the channel that triggers a task; "" for one that was sent.
func (s *synthesis) trigger(task gjson.Result, channel string) error {
	switch channel {
	case "":
		return nil
	case channelStart: // the input is what its task passed on
		value := []byte("{}")
		if r := task.Get("result"); r.IsObject() {
			value = []byte(r.Raw)
		}
		return s.put(channelStart, value)
	default:
		return s.put(channel, []byte("null"))
	}
}

// seeStart notes that the first step has consumed its input, unless it is next: a graph would run its first step again.
func (s *synthesis) seeStart() {
	_, known := s.made.seen[channelStart]
	waits := slices.ContainsFunc(s.snapshot.Get("next").Array(), func(name gjson.Result) bool { return name.String() == channelStart })
	if !known && !waits {
		s.made.seen[channelStart] = madeSeen{channelStart, s.made.versions[channelStart].version}
	}
}

// seal writes the checkpoint itself.
func (s *synthesis) seal() error {
	versions := &jsonobj.Object{}
	for _, channel := range sortedChannels(s.made.versions) {
		versions.SetText(channel, s.made.versions[channel].version)
	}
	seen := &jsonobj.Object{}
	for _, node := range slices.Sorted(maps.Keys(s.made.seen)) {
		o := &jsonobj.Object{}
		if last := s.made.seen[node]; last.version != "" {
			o.SetText(last.channel, last.version)
		}
		seen.Set(node, o.JSON())
	}
	seen.Set("__input__", emptyObject)
	updated, err := json.Marshal(s.updated)
	if err != nil {
		return err
	}
	data := &jsonobj.Object{}
	data.Set("v", json.RawMessage("4"))
	data.SetText("ts", s.snapshot.Get("created_at").String())
	data.SetText("id", string(s.step.ID))
	data.Set("channel_values", s.inline.JSON())
	data.Set("channel_versions", versions.JSON())
	data.Set("versions_seen", seen.JSON())
	data.Set("updated_channels", updated)
	s.step.Data = data.JSON()
	return nil
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

// taskWrites adds the writes of one task to a step.
type taskWrites struct {
	step       *Step
	task, path string
}

func (w *taskWrites) add(index int, channel string, data []byte) {
	w.step.Writes = append(w.step.Writes, checkpointer.Write{TaskID: w.task, Index: index, Channel: channel, Type: jsonplus.TypeMsgpack, Data: data, Path: w.path})
}

// addInterrupts adds what a task asks.
func (w *taskWrites) addInterrupts(interrupts []gjson.Result) error {
	if len(interrupts) == 0 {
		return nil
	}
	packed := msgp.AppendArrayHeader(nil, uint32(len(interrupts))) //nolint:gosec // as many as one answer has
	for _, i := range interrupts {
		value, err := jsonplus.AppendState(nil, orNull(i.Get("value").Raw))
		if err != nil {
			return fmt.Errorf("interrupt: %w", err)
		}
		var schema []byte
		if s := i.Get("response_schema"); s.Exists() {
			if schema, err = jsonplus.AppendValue(nil, []byte(s.Raw)); err != nil {
				return fmt.Errorf("interrupt: %w", err)
			}
		}
		packed = jsonplus.AppendInterrupt(packed, value, i.Get("id").String(), schema)
	}
	w.add(-3, channelInterrupt, packed)
	return nil
}

// addError adds the error that a task ended with.
func (w *taskWrites) addError(failure gjson.Result) error {
	if failure.Type != gjson.String {
		return nil
	}
	packed, err := jsonplus.AppendValue(nil, []byte(failure.Raw))
	if err != nil {
		return fmt.Errorf("error: %w", err)
	}
	w.add(-1, channelError, packed)
	return nil
}

// addResult adds what a finished task wrote: the values of channels, each of which may be several.
func (w *taskWrites) addResult(result gjson.Result) (err error) {
	index := 0
	if result.IsObject() {
		result.ForEach(func(k, v gjson.Result) bool {
			all := []gjson.Result{v}
			if more := v.Get("$writes"); more.IsArray() {
				all = more.Array()
			}
			for _, one := range all {
				var packed []byte
				if packed, err = jsonplus.AppendState(nil, []byte(one.Raw)); err != nil {
					return false
				}
				w.add(index, k.String(), packed)
				index++
			}
			return true
		})
	}
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if index == 0 {
		w.add(0, "__no_writes__", []byte{0xc0})
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
