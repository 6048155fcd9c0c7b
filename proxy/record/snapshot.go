package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/jsonscan"
)

// view is a snapshot in an answer, as parts of its bytes.
type view struct {
	body                     []byte
	values, metadata         span
	tasks, next              []byte
	checkpoint, parent       []byte
	created                  []byte
	id                       id.Checkpoint // "": no checkpoint, or not recordable
	parentID                 id.Checkpoint
	ns, graph, source, runID string
}

// span is a part of a body.
type span struct{ start, end int }

func (s span) of(b []byte) []byte { return b[s.start:s.end:s.end] }

// look finds the parts of a snapshot, which is valid JSON. Other JSON results in a view without id.
func look(body []byte) *view {
	v := &view{body: body}
	jsonscan.Each(body, func(key []byte, start, end int) bool {
		switch string(key) {
		case `"values"`:
			v.values = span{start, end}
		case `"metadata"`:
			v.metadata = span{start, end}
		case `"tasks"`:
			v.tasks = body[start:end]
		case `"next"`:
			v.next = body[start:end]
		case `"checkpoint"`:
			v.checkpoint = body[start:end]
		case `"parent_checkpoint"`:
			v.parent = body[start:end]
		case `"created_at"`:
			v.created = body[start:end]
		}
		return true
	})
	v.ns = jsonscan.Text(v.checkpoint, "checkpoint_ns")
	v.id = checkpointID(jsonscan.Text(v.checkpoint, "checkpoint_id"))
	v.parentID = checkpointID(jsonscan.Text(v.parent, "checkpoint_id"))
	metadata := v.metadata.of(body)
	v.graph, v.source = jsonscan.Text(metadata, "graph_id"), jsonscan.Text(metadata, "source")
	v.runID = jsonscan.Text(metadata, "run_id")
	if values := v.values.of(body); len(values) == 0 || values[0] != '{' {
		v.id = ""
	}
	return v
}

// root reports whether a view is of a root checkpoint.
func (v *view) root() bool { return v.id != "" && v.ns == "" }

// checkpointID returns the id of a checkpoint if it is safe to store: it becomes part of keys and of JSON.
func checkpointID(s string) id.Checkpoint {
	if !plain(s) {
		return ""
	}
	return id.Checkpoint(s)
}

// plain reports whether an id consists of digits, letters and hyphens, as all UUIDs do.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// isNull reports whether a value is null or absent.
func isNull(value []byte) bool { return len(value) == 0 || string(value) == "null" }

// settled reports whether the values are those of the checkpoint: no task has finished whose output they may hold.
func (v *view) settled() bool {
	tasks, ok := jsonscan.Elements(v.tasks)
	if !ok {
		return false
	}
	for _, t := range tasks {
		if r := jsonscan.Raw(t, "result"); !isNull(r) {
			return false
		}
	}
	next, _ := jsonscan.Elements(v.next)
	return len(next) == len(tasks)
}

// results returns the parts of tasks needed to show a snapshot.
func (v *view) results() []checkpointer.Task {
	items, _ := jsonscan.Elements(v.tasks)
	tasks := make([]checkpointer.Task, len(items))
	for i, t := range items {
		if r := jsonscan.Raw(t, "result"); !isNull(r) {
			tasks[i].Name, tasks[i].Result = jsonscan.Text(t, "name"), r
		}
	}
	return tasks
}

// snapshot is the part of a root checkpoint that recording needs. It shares no bytes with the answer it was read from.
type snapshot struct {
	id, parent id.Checkpoint
	run        id.Run
	graph      string
	channel    string
	source     string
	step       int
	at         time.Time
	version    string   // of the messages; "" when there are none
	items      [][]byte // nil: not a list
	channels   []eventstore.TextChannel
	passed     bool   // from an answer to a client, not to a request of ours
	start      []byte // the input's write to the messages channel; nil when unknown
}

// textsOf returns the channels of values that may hold the text of a summary.
func textsOf(values []byte) (channels []eventstore.TextChannel) {
	for _, name := range eventstore.SummaryChannels {
		value := jsonscan.Raw(values, name)
		if len(value) == 0 {
			continue
		}
		c := eventstore.TextChannel{Name: name, Version: versionOf(value)}
		if value[0] == '"' {
			c.Text = gjson.ParseBytes(value).String()
		}
		channels = append(channels, c)
	}
	return channels
}

// versionOf returns the version of a value: equal values have equal versions.
func versionOf(value []byte) string {
	sum := sha256.Sum256(value)
	return hex.EncodeToString(sum[:16])
}

// settle returns the snapshot of a view with settled values.
func (v *view) settle(channel string, p *pool) *snapshot {
	metadata := v.metadata.of(v.body)
	s := &snapshot{
		id: v.id, parent: v.parentID, graph: v.graph, channel: channel, source: v.source,
		step: int(gjson.GetBytes(jsonscan.Raw(metadata, "step"), "@this").Int()),
	}
	if v.source != "update" && v.source != "fork" && plain(v.runID) {
		s.run = id.Run(v.runID)
	}
	if s.parent == s.id {
		s.parent = ""
	}
	s.at, _ = time.Parse(time.RFC3339Nano, gjson.ParseBytes(v.created).String())
	values := v.values.of(v.body)
	jsonscan.Each(values, func(key []byte, start, end int) bool {
		value := values[start:end]
		if !jsonscan.IsKey(key, channel) || string(value) == "null" {
			return true
		}
		s.version = versionOf(value)
		if items, ok := jsonscan.Elements(value); ok {
			s.items = p.keep(items)
		}
		return false
	})
	s.channels = textsOf(values)
	tasks, _ := jsonscan.Elements(v.tasks)
	for _, t := range tasks {
		if jsonscan.Text(t, "name") == "__start__" {
			s.start = bytes.Clone(jsonscan.Raw(jsonscan.Raw(t, "result"), channel))
		}
	}
	return s
}

// facts returns the facts of a snapshot. parent is its recorded parent, or "".
func (s *snapshot) facts(t id.Thread, parent id.Checkpoint) eventstore.Facts {
	f := eventstore.Facts{
		Thread: t, Checkpoint: s.id, Parent: parent, Run: s.run, Source: s.source, Step: s.step, Channel: s.channel, At: s.at,
		Version: s.version, Channels: s.channels,
	}
	if s.version != "" {
		f.Messages = &eventstore.Value{Type: "bytes", Items: s.items}
	}
	return f
}

// pool stores each message of many snapshots once. Most messages are shared with the snapshot read before.
type pool struct {
	last  [][]byte
	known map[string][]byte
	size  int // bytes that are held
}

func newPool() *pool { return &pool{known: map[string][]byte{}} }

// keep returns copies of items, so that they do not retain the answer's bytes.
func (p *pool) keep(items []json.RawMessage) [][]byte {
	n := 0
	for n < len(items) && n < len(p.last) && bytes.Equal(items[n], p.last[n]) {
		n++
	}
	if n == len(items) && n > 0 {
		return p.last[:n:n]
	}
	kept := append(make([][]byte, 0, len(items)), p.last[:n]...)
	for _, item := range items[n:] {
		one := p.known[string(item)]
		if one == nil {
			one = bytes.Clone(item)
			p.known[string(one)] = one
			p.size += 2*len(one) + 128
		}
		kept = append(kept, one)
	}
	p.size += 24 * len(kept)
	p.last = kept
	return kept
}

// retain drops what snapshots do not use.
func (p *pool) retain(snapshots map[id.Checkpoint]*snapshot) {
	*p = pool{known: map[string][]byte{}}
	lists := map[*[]byte]bool{}
	for _, s := range snapshots {
		for _, item := range s.items {
			if p.known[string(item)] == nil {
				p.known[string(item)] = item
				p.size += 2*len(item) + 128
			}
		}
		if len(s.items) > 0 && !lists[&s.items[0]] { // shorter lists are mostly a prefix of a longer one
			lists[&s.items[0]] = true
			p.size += 24 * len(s.items)
		}
	}
}
