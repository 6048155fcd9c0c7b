package service_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/id"
	"understudy/run"
	"understudy/run/service"
	"understudy/thread"
)

// The index of metadata is in order of updated_at, so that a search reads its page whatever terms it has. What that costs: each term of a thread is
// written when a run is created and when it ends. Nothing in between, heartbeats least of all, writes any.
func TestTermsThatARunWrites(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	began, end := make(chan id.Run, 8), make(chan struct{})
	in := c.start(map[string]script{"g": {stream: func(ctx context.Context, inv graph.Invocation, emit func(string, string)) error {
		began <- inv.Run
		select {
		case <-end:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		emit("values", `{"n":1}`)
		return nil
	}}}, func(o *service.Options) { o.Lease = 2 * time.Second })
	conn, err := pgx.Connect(t.Context(), c.url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	count := func(text string) (n int) {
		require.NoError(t, conn.QueryRow(t.Context(), text).Scan(&n))
		return n
	}
	_, err = conn.Exec(t.Context(), `CREATE SEQUENCE terms_written;
		CREATE FUNCTION term_written() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('terms_written'); RETURN NULL; END $$;
		CREATE TRIGGER term_written AFTER INSERT OR UPDATE OR DELETE ON thread_metadata FOR EACH ROW EXECUTE FUNCTION term_written();
		SELECT nextval('terms_written')`)
	require.NoError(t, err)
	written := func() int { return count("SELECT last_value FROM terms_written") }

	now := time.Now()
	row := &thread.Thread{
		ID: id.NewThread(), CreatedAt: now, UpdatedAt: now, StateUpdatedAt: now, Status: thread.Idle, Config: json.RawMessage(`{}`),
		Metadata: json.RawMessage(`{"a":1,"b":"x","c":true,"d":null,"e":5}`),
	}
	require.NoError(t, in.store.Threads().Write(t.Context(), func(tx thread.Tx) error { return tx.InsertThread(row) }))
	for n := range 4 {
		before := written()
		// One begins at once, and the other waits in the queue.
		first, err := in.runs.Create(t.Context(), row.ID, request("g"))
		require.NoError(t, err)
		next(t, began)
		second, err := in.runs.Create(t.Context(), row.ID, request("g"))
		require.NoError(t, err)
		created := written()
		for range 2 {
			r, err := in.runs.Get(t.Context(), row.ID, first.ID)
			require.NoError(t, err)
			lease := r.LeaseUntil
			require.Eventually(t, func() bool {
				r, err := in.runs.Get(t.Context(), row.ID, first.ID)
				require.NoError(t, err)
				return r.LeaseUntil.After(lease)
			}, time.Minute, 10*time.Millisecond)
		}
		require.Equal(t, created, written(), "a heartbeat wrote terms")
		end <- struct{}{}
		next(t, began)
		end <- struct{}{}
		in.reaches(row.ID, second.ID, run.Success)
		terms := count("SELECT count(*) FROM thread_metadata")
		require.GreaterOrEqual(t, terms, 5)
		if n > 0 { // the first run adds its graph and assistant
			require.LessOrEqual(t, written()-before, 2*2*terms)
		}
	}
}
