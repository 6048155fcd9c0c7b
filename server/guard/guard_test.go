package guard

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/access"
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
