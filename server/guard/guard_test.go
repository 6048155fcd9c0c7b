package guard

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/access"
	"understudy/access/audit"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/thread"
)

// appearing has a thread from the second read on, as when another request creates it in between.
type appearing struct {
	reads int
	row   *thread.Thread
}

func (a *appearing) Thread(ctx context.Context, _ id.Thread) (*thread.Thread, error) {
	if a.reads++; a.reads == 1 || !access.Reach(ctx, access.Threads).Match(a.row.Metadata) {
		return nil, fault.New(fault.NotFound, "thread not found")
	}
	return a.row, nil
}

// unreadable threads fail with an error.
type unreadable struct{ error }

func (u unreadable) Thread(context.Context, id.Thread) (*thread.Thread, error) { return nil, u.error }

// A thread of others is hidden; one of one's own is not, also when another request creates it just now.
func TestHidden(t *testing.T) {
	t.Parallel()
	own, err := access.ParseFilter(json.RawMessage(`{"owner":"ada"}`))
	require.NoError(t, err)
	ctx := access.Narrow(t.Context(), access.Threads, own)
	for owner, want := range map[string]bool{"ada": false, "bob": true} {
		rows := &appearing{row: &thread.Thread{Metadata: json.RawMessage(`{"owner":"` + owner + `"}`)}}
		g := &Guard{Rows: rows}
		require.False(t, g.hidden(ctx, "t"), "it appears")
		require.Equal(t, want, g.hidden(ctx, "t"), owner)
		require.False(t, g.hidden(t.Context(), "t"), "everything is shown")
	}
}

// answers is a policy that gives the same answer to everything, and notes the questions.
type answers struct {
	decision access.Decision
	err      error
	asked    []string
}

func (a *answers) Decide(_ context.Context, _ *access.Actor, questions ...access.Question) ([]access.Decision, error) {
	for _, q := range questions {
		a.asked = append(a.asked, q.Resource+"."+q.Action+" "+string(q.Value))
	}
	return []access.Decision{a.decision}, a.err
}

// Who may write a thread is who may update it. Nobody asked for a refusal, so the audit log has none.
func TestMayWrite(t *testing.T) {
	t.Parallel()
	ctx := access.Enter(t.Context(), &access.Actor{Identity: "ada"}, "here")
	for name, c := range map[string]struct {
		policy answers
		owner  string
		unread error // of the row of the thread
		may    bool
		failed bool
	}{
		"all":         {policy: answers{}, owner: "bob", may: true},
		"own":         {policy: answers{decision: access.Decision{Filter: json.RawMessage(`{"owner":"ada"}`)}}, owner: "ada", may: true},
		"of others":   {policy: answers{decision: access.Decision{Filter: json.RawMessage(`{"owner":"ada"}`)}}, owner: "bob"},
		"refused":     {policy: answers{err: &access.Refusal{Status: 403}}, owner: "ada"},
		"not decided": {policy: answers{err: &access.Refusal{Status: 500}}, owner: "ada", failed: true},
		"gone":        {policy: answers{decision: access.Decision{Filter: json.RawMessage(`{"owner":"ada"}`)}}, unread: fault.New(fault.NotFound, "thread not found")},
		"not read":    {policy: answers{decision: access.Decision{Filter: json.RawMessage(`{"owner":"ada"}`)}}, unread: context.Canceled, failed: true},
	} {
		var rows interface {
			Thread(ctx context.Context, t id.Thread) (*thread.Thread, error)
		} = &appearing{reads: 1, row: &thread.Thread{Metadata: json.RawMessage(`{"owner":"` + c.owner + `"}`)}}
		if c.unread != nil {
			rows = unreadable{c.unread}
		}
		g := &Guard{Policy: &c.policy, Rows: rows, Audit: &audit.Log{}} // which would panic
		may, err := g.mayWrite(ctx, "t")
		require.Equal(t, c.may, may, name)
		require.Equal(t, c.failed, err != nil, name)
		require.Equal(t, []string{`threads.update {"thread_id":"t"}`}, c.policy.asked)
	}
}
