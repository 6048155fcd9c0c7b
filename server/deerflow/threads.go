package deerflow

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	domain "understudy/deerflow"
	"understudy/id"
	"understudy/internal/jsonobj"
	"understudy/thread"
)

// OwnerKey is the metadata of a thread that says whose it is.
const OwnerKey = "user_id"

// FormerOwnerKey is the metadata of a thread that says whose it was before a channel gave it to its owner, and in whose folder its files may still be.
const FormerOwnerKey = "former_user_id"

// ReservedKeys are metadata that clients cannot set; hiddenKeys those that they do not see.
var (
	ReservedKeys = []string{OwnerKey, FormerOwnerKey, "owner_id", "graph_id", "assistant_id"}
	hiddenKeys   = ReservedKeys
)

// Stamp is a time of the wire.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000+00:00") }

// without returns an object without keys; {} for nothing.
func without(raw json.RawMessage, keys ...string) json.RawMessage {
	o := jsonobj.Of(raw)
	for _, k := range keys {
		o.Delete(k)
	}
	return o.JSON()
}

type threadView struct {
	ID         string          `json:"thread_id"`
	Status     thread.Status   `json:"status"`
	CreatedAt  string          `json:"created_at"`
	UpdatedAt  string          `json:"updated_at"`
	Metadata   json.RawMessage `json:"metadata"`
	Values     json.RawMessage `json:"values"`
	Interrupts json.RawMessage `json:"interrupts"`
}

func viewOfThread(v *thread.View) threadView {
	interrupts := v.Interrupts
	if interrupts == nil {
		interrupts = json.RawMessage("{}")
	}
	return threadView{
		ID: string(v.ID), Status: v.Status, CreatedAt: Stamp(v.CreatedAt), UpdatedAt: Stamp(v.UpdatedAt), Metadata: without(v.Metadata, hiddenKeys...), Values: json.RawMessage("{}"), Interrupts: interrupts,
	}
}

// Thread is a thread; values says whether the state is shown.
func Thread(v *thread.View, values bool) json.RawMessage {
	out := viewOfThread(v)
	if values && len(v.Values) > 0 && v.Values[0] == '{' {
		out.Values = v.Values
	}
	return encode(out)
}

// ThreadRow is a thread in a list: of its values the title.
func ThreadRow(v *thread.View) json.RawMessage {
	out := viewOfThread(v)
	if title := gjson.GetBytes(v.Extracted, "title"); title.Type == gjson.String {
		out.Values = encode(map[string]string{"title": title.Str})
	}
	return encode(out)
}

// channels are the keys of the lead agent's state that a client may write.
var channels = []string{
	"messages", "title", "artifacts", "todos", "uploaded_files", "viewed_images", "sandbox", "thread_data", "goal", "promoted", "delegations", "skill_context", "summary_text",
}

// UnknownFields returns the keys of values that are no channels, by name; "" when there are none.
func UnknownFields(values json.RawMessage) string {
	var unknown []string
	for _, k := range jsonobj.Of(values).Keys() {
		if !slices.Contains(channels, k) {
			unknown = append(unknown, k)
		}
	}
	slices.Sort(unknown)
	return strings.Join(unknown, ", ")
}

type task struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// State is a snapshot as the Gateway shows it.
func State(s *checkpointer.Snapshot) json.RawMessage {
	tasks := []task{}
	for _, t := range s.Tasks {
		tasks = append(tasks, task{t.ID, t.Name})
	}
	type checkpoint struct {
		ID *string `json:"id"`
		TS *string `json:"ts"`
	}
	return encode(struct {
		Values     json.RawMessage `json:"values"`
		Next       []string        `json:"next"`
		Metadata   json.RawMessage `json:"metadata"`
		Checkpoint checkpoint      `json:"checkpoint"`
		ID         *string         `json:"checkpoint_id"`
		Parent     *string         `json:"parent_checkpoint_id"`
		CreatedAt  *string         `json:"created_at"`
		Tasks      []task          `json:"tasks"`
	}{
		object(s.Values), texts(s.Next), without(s.Metadata, hiddenKeys...), checkpoint{some(string(s.ID)), some(s.CreatedAt)}, some(string(s.ID)), some(string(s.Parent)), some(s.CreatedAt), tasks,
	})
}

// HistoryEntry is a snapshot in a history. Only the newest shows the messages.
func HistoryEntry(s *checkpointer.Snapshot, newest bool) json.RawMessage {
	values := jsonobj.Of(object(s.Values))
	if !newest {
		shown := &jsonobj.Object{}
		for _, key := range []string{"title", "thread_data"} {
			if v := values.Get(key); v != nil {
				shown.Set(key, v)
			}
		}
		values = shown
	}
	return encode(struct {
		ID        *string         `json:"checkpoint_id"`
		Parent    *string         `json:"parent_checkpoint_id"`
		Metadata  json.RawMessage `json:"metadata"`
		Values    json.RawMessage `json:"values"`
		CreatedAt *string         `json:"created_at"`
		Next      []string        `json:"next"`
	}{some(string(s.ID)), some(string(s.Parent)), without(s.Metadata, hiddenKeys...), values.JSON(), some(s.CreatedAt), texts(s.Next)})
}

func object(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || raw[0] != '{' {
		return json.RawMessage("{}")
	}
	return raw
}

func texts(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// some returns a pointer to a text; nil for "".
func some(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Compacted says what became of the conversation of a thread.
func Compacted(t id.Thread, c domain.Condensed) json.RawMessage {
	o := &jsonobj.Object{}
	o.SetText("thread_id", string(t))
	done := c.Checkpoint != ""
	o.Set("compacted", encode(done))
	o.Set("reason", encode(some(map[bool]string{false: "not_enough_messages"}[done])))
	o.Set("removed_message_count", encode(c.Removed))
	o.Set("preserved_message_count", encode(c.Kept))
	o.Set("summary_updated", encode(done))
	o.Set("checkpoint_id", encode(some(string(c.Checkpoint))))
	o.Set("total_tokens", encode(c.Tokens))
	return o.JSON()
}
