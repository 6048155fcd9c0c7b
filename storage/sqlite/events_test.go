package sqlite

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"zombiezen.com/go/sqlite"

	"understudy/eventstore"
	"understudy/storage/storagetest"
)

func TestEventSuite(t *testing.T) {
	t.Parallel()
	storagetest.RunEvents(t, func(t *testing.T) storagetest.Backend { return backend(t, Options{Dir: t.TempDir()}) })
}

// Contents go with the last thread that has them, and not before.
func TestEventBodiesAreCounted(t *testing.T) {
	t.Parallel()
	s := setup(t)
	bodies := func() (n int) {
		require.NoError(t, s.read(context.Background(), func(c *sqlite.Conn) error {
			_, err := one(c, "SELECT count(*) FROM event_bodies", func(st *sqlite.Stmt) error {
				n = st.ColumnInt(0)
				return nil
			})
			return err
		}))
		return n
	}
	write := func(fn func(*Tx) error) {
		t.Helper()
		require.NoError(t, s.write(context.Background(), fn))
	}
	write(func(tx *Tx) error { return tx.AppendEvents("a", []*eventstore.Event{event("x"), event("y")}) })
	insertThread(t, s, "a")
	insertThread(t, s, "nothing")
	copyThread(t, s, "a", "b")
	copyThread(t, s, "nothing", "c")
	require.Equal(t, 2, bodies())
	write(func(tx *Tx) error { return tx.AppendEvents("b", []*eventstore.Event{event("z")}) })
	write(func(tx *Tx) error { return tx.DeleteEvents("a") })
	require.Equal(t, 3, bodies())
	require.Equal(t, []string{"x", "y", "z"}, types(t, s, "b"))
	write(func(tx *Tx) error { return tx.DeleteEvents("b") })
	require.Zero(t, bodies())
}
