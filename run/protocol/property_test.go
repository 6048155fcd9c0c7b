package protocol_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/id"
	"understudy/internal/seedtest"
	"understudy/run"
	"understudy/run/protocol"
)

// story makes up the records of a thread: runs one after the other, with subgraphs, parallel models, tools, interrupts and attempts that break off anywhere.
type story struct {
	*rand.Rand
	rows    rows
	records []*bridge.Record
	ms      int64
	run     *run.Run
	attempt int
	count   int
}

func (s *story) add(kind bridge.Kind, event, ns, data string) {
	if ns != "" {
		event += "|" + ns
	}
	s.ms += s.Int64N(2)
	offset := bridge.Offset{MS: s.ms, N: int64(len(s.records))}
	s.records = append(s.records, &bridge.Record{Offset: offset, Run: s.run.ID, Kind: kind, Event: event, Data: []byte(data), Kept: s.run.Durable(), Attempt: s.attempt})
}

func (s *story) name() string {
	s.count++
	return fmt.Sprintf("%08d-0000-4000-8000-000000000000", s.count)
}

func newStory(seed uint64) *story {
	s := &story{Rand: rand.New(rand.NewPCG(seed, 1)), rows: rows{}, ms: 1_700_000_000_000}
	for range 1 + s.IntN(4) {
		s.ms += s.Int64N(5)
		s.run = &run.Run{ID: id.Run(s.name()), Graph: "g", StartedAt: time.UnixMilli(s.ms), Status: []run.Status{run.Success, run.Error, run.Interrupted, run.Timeout}[s.IntN(4)]}
		s.run.Error = json.RawMessage(`{"error":"E","message":"broke"}`)
		s.run.Kwargs.Resumable = s.IntN(4) > 0
		s.rows[s.run.ID] = s.run
		for s.attempt = 1; s.attempt == 1 || s.attempt < 4 && s.IntN(3) == 0; s.attempt++ {
			s.add(bridge.Data, "metadata", "", fmt.Sprintf(`{"run_id":%q,"attempt":%d}`, s.run.ID, s.attempt))
			s.graph("", 0)
			s.ms += 1000 // until the lease has expired
		}
		s.attempt--
		s.add(bridge.Terminal, "metadata", "", `{"status":"run_done"}`)
		if s.IntN(3) == 0 { // told twice
			s.add(bridge.Terminal, "metadata", "", `{"status":"run_done"}`)
		}
		if s.IntN(3) == 0 { // from a server that lost the run
			s.add(bridge.Data, "values", "", `{"n":3}`)
		}
	}
	return s
}

// graph executes a graph, of which some tasks run in parallel; it may break off.
func (s *story) graph(ns string, depth int) {
	s.add(bridge.Data, "values", ns, `{"n":1}`)
	for range s.IntN(3) {
		task := s.name()
		s.add(bridge.Data, "tasks", ns, fmt.Sprintf(`{"id":%q,"name":"node","input":{},"triggers":[]}`, task))
		switch s.IntN(6) {
		case 0, 1:
			if depth < 3 {
				child := "node:" + task
				if ns != "" {
					child = ns + "|" + child
				}
				s.graph(child, depth+1)
			}
		case 2:
			s.models(ns, task)
		case 3:
			s.add(bridge.Data, "tools", ns, `{"event":"tool-started","tool_call_id":"c","tool_name":"t","input":{}}`)
			s.add(bridge.Data, "tools", ns, `{"event":"tool-finished","tool_call_id":"c","output":{"type":"tool","content":"x","id":null}}`)
		case 4:
			asks := fmt.Sprintf(`{"__interrupt__":[{"value":1,"id":%q}]}`, s.name())
			s.add(bridge.Data, "updates", ns, asks)
			s.add(bridge.Data, "values", ns, asks)
		}
		if s.IntN(8) == 0 {
			return
		}
		s.add(bridge.Data, "updates", ns, `{"node":{"n":2},"other":null}`)
		result := []string{`"error":null,"result":{},"interrupts":[]`, `"error":"bad","result":{},"interrupts":[]`, `"error":null,"result":{},"interrupts":[{"value":1,"id":"x"}]`}[s.IntN(3)]
		s.add(bridge.Data, "tasks", ns, fmt.Sprintf(`{"id":%q,"name":"node",%s}`, task, result))
	}
}

// models lets some models speak at once.
func (s *story) models(ns, task string) {
	type model struct {
		id   string
		left int
	}
	var models []*model
	for range 1 + s.IntN(3) {
		models = append(models, &model{"lc_run--" + s.name(), s.IntN(4)})
	}
	for len(models) > 0 {
		i := s.IntN(len(models))
		m := models[i]
		m.left--
		last := "null"
		if m.left < 0 && s.IntN(4) > 0 {
			last = `"last"`
		}
		content := []string{
			`"content":"w","tool_call_chunks":[]`, `"content":"","tool_call_chunks":[{"name":"t","args":"{","id":"c","index":0}]`,
			`"content":[{"type":"text","text":"x","index":1}],"tool_call_chunks":[]`,
		}[s.IntN(3)]
		s.add(bridge.Token, "messages", ns, fmt.Sprintf(`[{"type":"AIMessageChunk","id":%q,%s,"usage_metadata":null,"chunk_position":%s},{"langgraph_node":"node","langgraph_checkpoint_ns":"node:%s"}]`,
			m.id, content, last, task))
		if m.left < 0 {
			models = slices.Delete(models, i, i+1)
			if s.IntN(2) == 0 { // the node returns what was streamed
				s.add(bridge.Token, "messages", ns, fmt.Sprintf(`[{"type":"ai","id":%q,"content":"w"},{"langgraph_node":"node","langgraph_checkpoint_ns":"node:%s"}]`, m.id, task))
			}
		}
	}
}

// live shows rows as they are while the records come: runs end with their terminal record.
type live struct {
	rows
	over map[id.Run]bool
}

func (l live) Run(ctx context.Context, name id.Run) (*run.Run, error) {
	row, err := l.rows.Run(ctx, name)
	if err == nil && !l.over[name] {
		running := *row
		running.Status, running.Error = run.Running, nil
		row = &running
	}
	return row, err
}

func TestProperties(t *testing.T) {
	t.Parallel()
	for seed := range seedtest.Seeds(400) {
		s := newStory(seed)
		whole := project(t, s.rows, everything, s.records)
		wellFormed(t, whole, fmt.Sprintf("seed %d", seed))

		// Who follows live sees what who comes later is replayed.
		now := live{s.rows, map[id.Run]bool{}}
		p := protocol.New(now, everything)
		var followed []event
		for _, rec := range s.records {
			if rec.Kind == bridge.Terminal {
				now.over[rec.Run] = true
			}
			events, err := p.Add(t.Context(), rec)
			require.NoError(t, err)
			followed = append(followed, decoded(t, events)...)
		}
		require.Equal(t, whole, followed, "seed %d", seed)

		// A position hides what is not above it, and nothing else.
		if len(whole) > 0 {
			after := everything
			after.Since = whole[s.IntN(len(whole))].Seq
			require.Equal(t, keep(whole, func(e event) bool { return e.Seq > after.Since }), project(t, s.rows, after, s.records), "seed %d", seed)
		}

		// A filter takes events away, and changes none.
		zero := 0
		roots := protocol.Filter{Channels: []string{"values", "messages"}, Namespaces: [][]string{{}}, Depth: &zero}
		require.Equal(t, keep(whole, func(e event) bool {
			return (e.Method == "values" || e.Method == "messages") && len(e.Params.Namespace) == 0
		}), project(t, s.rows, roots, s.records), "seed %d", seed)

		// What one reader does not see of a summarizer does not move what others see.
		hides := hiding{s.rows}
		require.Equal(t, keep(whole, func(e event) bool {
			return e.Method != "messages" || strings.HasPrefix(strings.Join(e.Params.Namespace[max(0, len(e.Params.Namespace)-1):], ""), "tools:")
		}), project(t, hides, everything, s.records), "seed %d", seed)

		// A server that is killed has not written the last records of its attempt. Who has seen them and who has not see the next attempt under the same numbers,
		// and no event has the number of one that is gone.
		if begin, kept := s.killed(); begin > 0 {
			before, after := projectFrom(t, s.rows, s.records, begin)
			keptBefore, keptAfter := projectFrom(t, s.rows, kept, begin-(len(s.records)-len(kept)))
			require.Equal(t, timeless(after), timeless(keptAfter), "seed %d", seed)
			gone := keep(before, func(e event) bool {
				return !slices.ContainsFunc(keptBefore, func(k event) bool { return k.EventID == e.EventID })
			})
			for _, e := range gone {
				require.False(t, slices.ContainsFunc(project(t, s.rows, everything, kept), func(k event) bool { return k.Seq == e.Seq }), "seed %d: %d is another event", seed, e.Seq)
			}
			wellFormed(t, project(t, s.rows, everything, kept), fmt.Sprintf("seed %d, killed", seed))
		}

		// The record of an end may never come.
		over := map[id.Run]bool{}
		lost := slices.DeleteFunc(slices.Clone(s.records), func(rec *bridge.Record) bool {
			over[rec.Run] = over[rec.Run] || rec.Kind == bridge.Terminal
			return over[rec.Run]
		})
		ended := project(t, s.rows, everything, lost)
		wellFormed(t, ended, fmt.Sprintf("seed %d, without ends", seed))
		require.Len(t, ended, len(whole), "seed %d", seed)
	}
}

// killed returns the place at which another attempt of a run that is kept begins, and the records without some of the last ones before it, which were not written.
// 0: there is no such place.
func (s *story) killed() (begin int, kept []*bridge.Record) {
	var places []int
	for i, rec := range s.records {
		if rec.Attempt > 1 && rec.Event == "metadata" && rec.Kind != bridge.Terminal && s.rows[rec.Run].Durable() {
			places = append(places, i)
		}
	}
	if len(places) == 0 {
		return 0, nil
	}
	begin = places[s.IntN(len(places))]
	first := begin
	for at := s.records[begin]; first > 0 && s.records[first-1].Run == at.Run && s.records[first-1].Attempt == at.Attempt-1; {
		if first--; bytes.Contains(s.records[first].Data, []byte("__interrupt__")) {
			return 0, nil // it is not requested again
		}
	}
	return begin, slices.Delete(slices.Clone(s.records), begin-s.IntN(begin-first), begin) // the first record of the attempt was written
}

// timeless returns events without their times.
func timeless(events []event) []event {
	events = slices.Clone(events)
	for i := range events {
		events[i].Params.Timestamp = 0
	}
	return events
}

// projectFrom returns the events of records up to the one at an index, which begins an attempt, and those of the rest.
func projectFrom(t *testing.T, source protocol.Source, records []*bridge.Record, index int) (before, after []event) {
	t.Helper()
	p := protocol.New(source, everything)
	for i, rec := range records {
		events, err := p.Add(t.Context(), rec)
		require.NoError(t, err)
		if i <= index {
			before = append(before, decoded(t, events)...)
		} else {
			after = append(after, decoded(t, events)...)
		}
	}
	return before, after
}

// hiding shows no messages, as those of a summarizer.
type hiding struct{ rows }

func (h hiding) Show(_ context.Context, _ *run.Run, rec *bridge.Record) (*bridge.Record, error) {
	if strings.HasPrefix(rec.Event, "messages") {
		return nil, nil
	}
	return rec, nil
}

func keep(events []event, want func(event) bool) []event {
	out := slices.DeleteFunc(slices.Clone(events), func(e event) bool { return !want(e) })
	if len(out) == 0 {
		return nil
	}
	return out
}

// wellFormed checks what holds for the events of every thread.
func wellFormed(t *testing.T, events []event, about string) {
	t.Helper()
	ids, last := map[string]bool{}, int64(-1)
	spaces, messages := map[string]bool{}, map[string]map[float64]bool{}
	running, terminal := false, false
	for _, e := range events {
		require.Greater(t, e.Seq, last, about)
		require.False(t, ids[e.EventID], "%s: %s twice", about, e.EventID)
		ids[e.EventID], last = true, e.Seq
		data, ns := e.Params.Data, strings.Join(e.Params.Namespace, "|")
		what, _ := data["event"].(string)
		switch {
		case e.Method == "lifecycle" && ns == "" && what == "running":
			require.False(t, running && !terminal, "%s: a run begins within another", about)
			running, terminal = true, false
			require.Empty(t, spaces, about)
			require.Empty(t, messages, about)
		case e.Method == "lifecycle" && ns == "":
			require.True(t, running && !terminal, "%s: a second end", about)
			terminal = true
		case e.Method == "lifecycle" && what == "started":
			require.False(t, spaces[ns], "%s: %s started twice", about, ns)
			spaces[ns] = true
		case e.Method == "lifecycle":
			require.True(t, spaces[ns], "%s: %s ended, and was not started", about, ns)
			for other := range spaces {
				require.False(t, strings.HasPrefix(other, ns+"|"), "%s: %s ended before %s", about, ns, other)
			}
			for key := range messages {
				require.False(t, strings.HasPrefix(key, ns+" "), "%s: %s ended before its messages", about, ns)
			}
			delete(spaces, ns)
		case e.Method == "messages":
			key := ns + " " + data["id"].(string)
			blocks, open := messages[key]
			index, _ := data["index"].(float64)
			switch what {
			case "message-start":
				require.False(t, open, "%s: %s started twice", about, key)
				messages[key] = map[float64]bool{}
			case "message-finish":
				require.True(t, open, "%s: %s is not open", about, key)
				require.Empty(t, blocks, about)
				delete(messages, key)
			case "content-block-start":
				require.True(t, open && !blocks[index], about)
				blocks[index] = true
			case "content-block-delta":
				require.True(t, blocks[index], about)
			case "content-block-finish":
				require.True(t, blocks[index], about)
				delete(blocks, index)
			default:
				require.Fail(t, what)
			}
		}
	}
	require.True(t, terminal || !running, "%s: no end", about)
	require.Empty(t, spaces, about)
	require.Empty(t, messages, about)
}
