package remote

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/id"
)

// snapshot is a checkpoint in the upstream's form of state and history.
type snapshot struct {
	Values     json.RawMessage `json:"values"`
	Next       []string        `json:"next"`
	Tasks      []task          `json:"tasks"`
	Metadata   json.RawMessage `json:"metadata"`
	CreatedAt  string          `json:"created_at"`
	Checkpoint place           `json:"checkpoint"`
	Parent     place           `json:"parent_checkpoint"`
}

// place identifies a checkpoint. Its fields are empty when there is none.
type place struct {
	NS string        `json:"checkpoint_ns"`
	ID id.Checkpoint `json:"checkpoint_id"`
}

type task struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Path       json.RawMessage   `json:"path"`
	Error      *string           `json:"error"`
	Interrupts []json.RawMessage `json:"interrupts"`
	Checkpoint *place            `json:"checkpoint"`
	Result     json.RawMessage   `json:"result"`
}

// exists reports whether there is such a checkpoint: the upstream answers 200 with an empty state when there is none.
func (s *snapshot) exists() bool { return s.Checkpoint.ID != "" && s.CreatedAt != "" }

func (s *snapshot) run() string { return gjson.GetBytes(s.Metadata, "run_id").String() }

// fromEvent reads a `checkpoints` event. It lacks times, paths and most of the metadata, which are read from history when the run has ended.
func fromEvent(data []byte) (*snapshot, error) {
	type config struct {
		Configurable place `json:"configurable"`
	}
	var e struct {
		Config   config          `json:"config"`
		Parent   *config         `json:"parent_config"`
		Values   json.RawMessage `json:"values"`
		Metadata json.RawMessage `json:"metadata"`
		Next     []string        `json:"next"`
		Tasks    []struct {
			ID    string          `json:"id"`
			Name  string          `json:"name"`
			State json.RawMessage `json:"state"`
		} `json:"tasks"`
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, err
	}
	s := &snapshot{Values: e.Values, Next: e.Next, Metadata: e.Metadata, Checkpoint: e.Config.Configurable, Tasks: make([]task, len(e.Tasks))}
	if e.Parent != nil {
		s.Parent = e.Parent.Configurable
	}
	s.CreatedAt = madeAt(s.Checkpoint.ID)
	count := map[string]int{}
	for _, t := range e.Tasks {
		count[t.Name]++
	}
	sends := 0
	for i, t := range e.Tasks {
		s.Tasks[i] = task{ID: t.ID, Name: t.Name}
		if count[t.Name] > 1 { // a node is pulled once in a step: more are sends
			s.Tasks[i].Path, _ = json.Marshal([]any{"__pregel_push", sends, false})
			sends++
		} else {
			s.Tasks[i].Path = checkpointer.PullPath(t.Name)
		}
		if len(t.State) > 0 && !bytes.Equal(t.State, []byte("null")) {
			s.Tasks[i].Checkpoint = &place{}
		}
	}
	return s, nil
}

// madeAt returns the time in a checkpoint's id, in LangGraph's format.
func madeAt(c id.Checkpoint) string {
	u, err := uuid.Parse(string(c))
	if err != nil || u.Version() != 6 {
		return time.Now().UTC().Format(timeFormat)
	}
	return time.Unix(u.Time().UnixTime()).UTC().Format(timeFormat)
}

const timeFormat = "2006-01-02T15:04:05.000000+00:00"

// description returns the graph's own facts about the checkpoint, as in checkpointer.Checkpoint.
func (s *snapshot) description() json.RawMessage {
	type described struct {
		ID       string          `json:"id"`
		Name     string          `json:"name"`
		Path     json.RawMessage `json:"path"`
		Subgraph bool            `json:"subgraph"`
	}
	out := make([]described, len(s.Tasks))
	for i, t := range s.Tasks {
		out[i] = described{t.ID, t.Name, t.Path, t.Checkpoint != nil}
		if out[i].Path == nil {
			out[i].Path = json.RawMessage("[]")
		}
	}
	b, _ := json.Marshal(out) // strings and JSON that was parsed before
	return b
}

func (s *snapshot) key(t id.Thread) checkpointer.Key {
	return checkpointer.Key{Thread: t, NS: s.Checkpoint.NS, ID: s.Checkpoint.ID}
}
