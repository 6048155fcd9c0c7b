package python_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"understudy/checkpointer"
	"understudy/graph"
	"understudy/graph/python"
	"understudy/internal/fault"
)

// A graph continues while its earlier saves are being committed, and queued saves are committed together. Nothing is shown before its
// commit, and the run does not end before.
func testSaves(t *testing.T, p *python.Pool) {
	m := newMemory()
	inv := invocation(m, `{"topic":"none"}`, "values", "updates")
	release := make(chan struct{})
	m.beforePut = func(*checkpointer.Put) error { <-release; return nil }
	var held []<-chan struct{}
	for e, err := range p.Graph("failing").Stream(context.Background(), inv) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Hold == nil {
			continue
		}
		select {
		case <-e.Hold:
			t.Errorf("%s is shown before its checkpoint is saved", e.Data)
		default:
		}
		if held = append(held, e.Hold); len(held) == 3 { // the last values: the graph is through
			close(release)
			<-e.Hold
		}
	}
	for _, hold := range held {
		<-hold
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := 0
	for _, n := range m.saves {
		all += n
	}
	// Four checkpoints, and the writes of the input and of two nodes.
	if len(m.order) != 4 || all < 6 || len(m.saves) >= all {
		t.Errorf("%d checkpoints, saved in %v", len(m.order), m.saves)
	}
	for i, at := range m.order {
		if put := m.rows[at]; i > 0 && put.Parent != m.order[i-1].ID {
			t.Errorf("checkpoint %d was saved before its parent", i)
		}
	}
}

// inputAlone returns how many saves of what a run does with its input have no checkpoint that has the result.
func inputAlone(m *memory) *atomic.Int32 {
	alone := new(atomic.Int32)
	m.onSave = func(saves []graph.Save) {
		waits := false
		for _, sv := range saves {
			waits = sv.Put == nil && sv.Writes[0].Path == "~__pregel_pull, __start__" || waits && sv.Put == nil
		}
		if waits {
			alone.Add(1)
		}
	}
	return alone
}

// The writes that apply an input are committed together with the checkpoint that has them, so that no state shows what may be lost. If
// there is no such checkpoint, since a reducer refuses the input, they are saved as LangGraph has them.
func testInputWithItsCheckpoint(t *testing.T, p *python.Pool) {
	large := strings.Repeat("x", 1<<20) // sent at once, and not together with what comes next
	for _, durability := range []string{"async", "sync"} {
		for _, name := range []string{"strictly", "nested"} {
			m := newMemory()
			alone := inputAlone(m)
			inv := invocation(m, `{"items":["`+large+`"]}`, "values")
			inv.Durability = durability
			must(t, p, name, inv)
			if n := alone.Load(); n > 0 || len(m.writes) == 0 {
				t.Errorf("%s, %s: %d inputs were saved without their checkpoint, of %d steps with writes", name, durability, n, len(m.writes))
			}
		}
		m := newMemory()
		inv := invocation(m, `{"items":["fail"]}`, "values")
		inv.Durability = durability
		if _, err := collect(t, p.Graph("strictly"), inv); err == nil || len(m.order) != 1 || len(m.writes) != 1 {
			t.Errorf("%s: %v, with %d checkpoints and writes of %d", durability, err, len(m.order), len(m.writes))
		}
	}
}

// When the worker dies while it applies an input, nothing of it is left: the run applies it again. That is so also when the checkpoint of the
// input is still being saved at that time.
func TestDeathWhileAnInputIsApplied(t *testing.T) {
	t.Parallel()
	p := start(t, options(t))
	for _, durability := range []string{"async", "sync"} {
		must(t, p, "strictly", invocation(newMemory(), `{"items":["shown"]}`, "values")) // the worker describes its checkpoints once
		m := newMemory()
		if durability == "async" { // else the worker waits for it
			m.beforePut = func(*checkpointer.Put) error {
				await(t, "the worker is dead", p.Over)
				return nil
			}
		}
		inv := invocation(m, `{"items":["die"]}`, "custom") // nothing shows the state before it is saved
		inv.Durability = durability
		if _, err := collect(t, p.Graph("strictly"), inv); !errors.Is(err, graph.ErrWorkerDied) {
			t.Errorf("%s: %v", durability, err)
		}
		m.mu.Lock()
		if len(m.writes) > 0 {
			t.Errorf("%s: %d checkpoints, with writes of %d", durability, len(m.order), len(m.writes))
		}
		m.mu.Unlock()
	}
}

// What cannot be saved fails the run, which may be through by then, and nothing is saved after it.
func testRefusedSaves(t *testing.T, p *python.Pool) {
	for _, durability := range []string{"async", "sync", "exit"} {
		m := newMemory()
		inv := invocation(m, `{"topic":"none"}`, "values")
		inv.Durability = durability
		m.beforePut = func(put *checkpointer.Put) error {
			if durability != "exit" && put.Parent == "" {
				return nil
			}
			return errors.New("the disk is full")
		}
		var err error
		shown := 0
		for e, ended := range p.Graph("failing").Stream(t.Context(), inv) {
			if err = ended; err != nil || e.Hold == nil {
				continue
			}
			if <-e.Hold; !e.Lost() {
				shown++
			}
		}
		if shown != 0 { // the checkpoint of the input has no values
			t.Errorf("%s: %d values are shown whose checkpoint was not saved", durability, shown)
		}
		var failure *graph.Failure
		if !errors.As(err, &failure) || failure.Message != "An internal error occurred" {
			t.Errorf("%s: the run ended with %v", durability, err)
		}
		if want := map[bool]int{true: 0, false: 1}[durability == "exit"]; len(m.order) != want {
			t.Errorf("%s: %d checkpoints", durability, len(m.order))
		}
	}
}

// What has no form that can be saved fails the run, and the log names the node, the key and the object; clients see what LangGraph Server shows.
func testUnsaved(t *testing.T, p *python.Pool) {
	const what, again = "return data that can be saved", "keep in the state what can be saved"
	for topic, want := range map[string][2]string{
		"plain":   {"cannot be saved: node 'fetch' returned a 'lock' object in key 'session'\n", what},
		"deep":    {"cannot be saved: node 'fetch' returned a 'lock' object in key 'session', at ['x'][1].lock\n", what},
		"send":    {"cannot be saved: node 'fetch' returned a 'lock' object in the argument of a Send, at .arg['lock'].lock\n", what},
		"reducer": {"cannot be saved: the run has a 'lock' object in key 'held', at [0]\n", again},
	} {
		_, err := collect(t, p.Graph("unsaved"), invocation(newMemory(), `{"topic":"`+topic+`"}`, "values"))
		var f *graph.Failure
		if !errors.As(err, &f) || f.Error() != "TypeError: cannot pickle '_thread.lock' object" || !strings.Contains(f.Detail, want[0]) || !strings.HasPrefix(f.Fix, want[1]) {
			t.Errorf("%s: %v, with the traceback %s and the fix %q", topic, err, f.Detail, f.Fix)
		}
	}
}

// unable is a saver that fails with an error.
type unable struct {
	*memory
	load, save error
}

func (u unable) Load(ctx context.Context, k checkpointer.Key) (*checkpointer.Tuple, error) {
	if u.load != nil {
		return nil, u.load
	}
	return u.memory.Load(ctx, k)
}

func (u unable) Save(ctx context.Context, saves ...graph.Save) error {
	if u.save != nil {
		return u.save
	}
	return u.memory.Save(ctx, saves...)
}

// Errors of the server that end a question keep their kind on the way through the worker.
func testKindsOfErrors(t *testing.T, p *python.Pool) {
	for kind := fault.Internal; kind <= fault.Upstream; kind++ {
		want := fault.New(kind, fmt.Sprint("kind ", int(kind)))
		for name, s := range map[string]unable{"load": {load: want}, "save": {save: want}} {
			m := newMemory()
			inv := invocation(m, `{"topic":"none"}`, "values")
			if name == "save" {
				must(t, p, "echo", inv)
			}
			s.memory = m
			cfg := inv.Config
			cfg.Saver = s
			_, err := p.Graph("echo").Update(t.Context(), cfg, inv.At, [][]graph.StateUpdate{{{Values: json.RawMessage(`{"topic":"x"}`), AsNode: "echo"}}})
			var got *fault.Error
			if !errors.As(err, &got) || got.Kind != kind || got.Message != want.Message {
				t.Errorf("%s with kind %d: update ended with %v", name, kind, err)
			}
			if name == "save" {
				continue
			}
			if _, err := p.Graph("echo").Explain(t.Context(), cfg, inv.At, true); !errors.As(err, &got) || got.Kind != kind {
				t.Errorf("%s with kind %d: explain ended with %v", name, kind, err)
			}
			run := invocation(m, `{"topic":"none"}`, "values")
			run.Saver = s
			_, err = collect(t, p.Graph("echo"), run)
			var f *graph.Failure
			wantType, wantText := "ServerError", "An internal error occurred"
			switch kind { // clients see what these say
			case fault.Unavailable:
				wantType, wantText = "ServiceUnavailable", want.Message
			case fault.TooLarge:
				wantText = want.Message
			}
			if !errors.As(err, &f) || f.Type != wantType || f.Message != wantText || !f.Server {
				t.Errorf("%s with kind %d: the run ended with %v", name, kind, err)
			}
		}
	}
}
