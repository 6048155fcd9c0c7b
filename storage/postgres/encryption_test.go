package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/checkpointer"
	"understudy/id"
	"understudy/internal/encryption"
	"understudy/internal/fleet"
	"understudy/internal/postgrestest"
	"understudy/storage/internal/seal"
	"understudy/storage/storagetest"
	"understudy/thread"
)

// stale counts the values that do not have the current key, by column.
func (s *Store) stale(t *testing.T) map[string]int {
	t.Helper()
	ring, err := s.keys.For(t.Context())
	require.NoError(t, err)
	columns, err := s.secrets(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, columns)
	out := map[string]int{}
	for _, c := range columns {
		column := pgx.Identifier{c.Column}.Sanitize()
		found, err := s.pool.Query(t.Context(), "SELECT "+column+" FROM "+c.Table+" WHERE "+column+" IS NOT NULL")
		require.NoError(t, err)
		values, err := pgx.CollectRows(found, pgx.RowTo[[]byte])
		require.NoError(t, err)
		for _, value := range values {
			deep, members := "", seal.MetadataMembers
			if c.Column == "checkpoint" {
				deep, members = seal.Deep, seal.CheckpointMembers
			}
			if c.JSON && !ring.JSONCurrent(value, deep, members...) || !c.JSON && !ring.Current(value) {
				out[c.Table+"."+c.Column]++
			}
		}
	}
	return out
}

// Nothing keeps an older key, or stays readable, whatever servers do meanwhile: they move rows, copy values to places that were passed, and collide.
func TestEncryptWhileServersWrite(t *testing.T) {
	url := postgrestest.Database(t) + "&deadlock_timeout=10ms"
	before := open(t, Options{URL: url, Keys: [][]byte{[]byte("0123456789abcdef")}})
	const count = 3 * encryptBatch
	ring, err := before.keys.For(t.Context())
	require.NoError(t, err)
	run := func(s *Store, text string, args ...any) {
		_, err := s.pool.Exec(t.Context(), text, args...)
		require.NoError(t, err, text)
	}
	var values [][]byte
	for n := range count {
		value := fmt.Appendf(nil, `{"n":%d}`, n)
		if n%2 == 0 { // of before there was a key
			value = ring.Seal(value)
		}
		values = append(values, value)
	}
	for _, text := range []string{
		"INSERT INTO event_bodies (body, refs, content) SELECT n, 1, value FROM unnest($1::bytea[]) WITH ORDINALITY u (value, n)",
		`INSERT INTO threads (thread_id, created_at, updated_at, state_updated_at, status, touched, metadata, config)
			SELECT 'm' || n, 1, 1, 1, 'idle', true, value, value FROM unnest($1::bytea[]) WITH ORDINALITY u (value, n)`,
		`INSERT INTO checkpoints (thread_id, checkpoint_id, checkpoint, metadata)
			SELECT 'm' || n, 'c', jsonb_build_object('v', 1, 'channel_values', jsonb_build_object('n', n)), '{"user":"x"}' FROM unnest($1::bytea[]) WITH ORDINALITY u (value, n)`,
	} {
		run(before, text, values)
	}
	// What is encrypted is copied, as it was, to the place in front of all.
	run(before, `CREATE FUNCTION copies() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO threads (thread_id, created_at, updated_at, state_updated_at, status, touched, metadata) VALUES ('a' || OLD.thread_id, 1, 1, 1, 'idle', true, OLD.metadata) ON CONFLICT DO NOTHING; RETURN NEW; END $$`)
	run(before, `CREATE TRIGGER copies AFTER UPDATE OF metadata ON threads FOR EACH ROW WHEN (OLD.thread_id LIKE 'm%7') EXECUTE FUNCTION copies()`)

	keys := [][]byte{[]byte("fedcba9876543210"), []byte("0123456789abcdef")}
	server := open(t, Options{URL: url, Keys: keys, Connections: 4})
	require.NotEmpty(t, server.stale(t))
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 1))
		writers.Go(func() {
			for ctx.Err() == nil {
				_ = pgx.BeginFunc(t.Context(), server.pool, func(tx pgx.Tx) error { // which deadlocks now and then
					for range 4 {
						n := random.IntN(count)
						for _, text := range []string{"UPDATE threads SET updated_at = updated_at + 1 WHERE thread_id = $1", "UPDATE checkpoints SET type = 'x' WHERE thread_id = $1"} {
							if _, err := tx.Exec(t.Context(), text, fmt.Sprint("m", n+1)); err != nil {
								return err
							}
						}
						if _, err := tx.Exec(t.Context(), "UPDATE event_bodies SET refs = refs + 1 WHERE body = $1", n+1); err != nil {
							return err
						}
					}
					return nil
				})
			}
		})
	}
	changed, err := Encrypt(t.Context(), Options{URL: url, Keys: keys})
	stop()
	writers.Wait()
	require.NoError(t, err)
	require.GreaterOrEqual(t, changed, 5*count+count/10)
	require.Empty(t, server.stale(t))
	again, err := Encrypt(t.Context(), Options{URL: url, Keys: keys})
	require.NoError(t, err)
	require.Zero(t, again)
}

// A copy that was read before the original was encrypted with the current key is written with it.
func TestEncryptWhileAThreadIsCopied(t *testing.T) {
	older, newer := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	for name, keys := range map[string]struct{ before, after [][]byte }{
		"without a key":     {nil, [][]byte{newer}},
		"with an older key": {[][]byte{older}, [][]byte{newer, older}},
	} {
		t.Run(name, func(t *testing.T) {
			url, th := postgrestest.Database(t), id.NewThread()
			before := open(t, Options{URL: url, Keys: keys.before})
			require.NoError(t, before.write(t.Context(), func(tx *Tx) error {
				if err := tx.InsertThread(&thread.Thread{ID: th, CreatedAt: time.Now(), UpdatedAt: time.Now(), Status: thread.Idle, Metadata: json.RawMessage(`{}`)}); err != nil {
					return err
				}
				return tx.PutCheckpoint(&checkpointer.Put{Checkpoint: checkpointer.Checkpoint{
					Key: checkpointer.Key{Thread: th, ID: "c"}, Data: json.RawMessage(`{"v":4,"id":"c","channel_values":{"n":"secret"}}`), Metadata: json.RawMessage(`{"user":"secret"}`),
				}})
			}))
			server := open(t, Options{URL: url, Keys: keys.after})
			c := &copier{store: server, from: th, to: id.NewThread()}
			require.NoError(t, server.snapshot(t.Context(), func(q *reader) error { return c.read(t.Context(), q) }))
			_, err := Encrypt(t.Context(), Options{URL: url, Keys: keys.after})
			require.NoError(t, err)
			require.NoError(t, server.write(t.Context(), c.put))
			require.Empty(t, server.stale(t))
			tuple, err := server.Threads().LoadCheckpoint(t.Context(), checkpointer.Key{Thread: c.to, ID: "c"})
			require.NoError(t, err)
			require.JSONEq(t, `{"user":"secret"}`, string(tuple.Metadata))
			require.Equal(t, "secret", gjson.GetBytes(tuple.Data, "channel_values.n").Str)
		})
	}
}

// A batch ends after a number of bytes, and the next ones are smaller; nothing is left out.
func TestEncryptLargeValues(t *testing.T) {
	url := postgrestest.Database(t)
	plain := open(t, Options{URL: url})
	_, err := plain.pool.Exec(t.Context(), `INSERT INTO event_bodies (body, refs, content) SELECT n, 1, decode(repeat('7b', CASE WHEN n BETWEEN 20 AND 24 THEN $1 ELSE 10 END), 'hex') FROM generate_series(1, 1200) n`, encryptBytes*2/3)
	require.NoError(t, err)
	keys := [][]byte{[]byte("0123456789abcdef")}
	changed, err := Encrypt(t.Context(), Options{URL: url, Keys: keys})
	require.NoError(t, err)
	require.Equal(t, 1200, changed)
	require.Empty(t, open(t, Options{URL: url, Keys: keys}).stale(t))
}

// A program that writes without the key, again and again, is an error and not a command that never ends.
func TestEncryptBesideProgramWithoutKey(t *testing.T) {
	url := postgrestest.Database(t)
	plain := open(t, Options{URL: url})
	for _, text := range []string{
		`INSERT INTO event_bodies (body, refs, content) VALUES (1, 1, '{}')`,
		`CREATE FUNCTION restores() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.content = OLD.content; RETURN NEW; END $$`,
		`CREATE TRIGGER restores BEFORE UPDATE ON event_bodies FOR EACH ROW EXECUTE FUNCTION restores()`,
	} {
		_, err := plain.pool.Exec(t.Context(), text)
		require.NoError(t, err)
	}
	_, err := Encrypt(t.Context(), Options{URL: url, Keys: [][]byte{[]byte("0123456789abcdef")}})
	require.ErrorIs(t, err, errStillStale)
}

// However many contexts are new at once, looking for their data keys takes a bounded number of connections.
func TestNewContextsAtOnce(t *testing.T) {
	server := postgrestest.Start(t, "max_connections=15")
	s := open(t, Options{URL: server.Database(t), Handlers: storagetest.Handlers{}, Connections: 6})
	var all sync.WaitGroup
	for n := range 200 {
		all.Go(func() {
			in := encryption.With(t.Context(), encryption.Context(fmt.Sprintf(`{"tenant":"%d"}`, n)))
			assert.NoError(t, s.write(in, func(tx *Tx) error { return tx.InsertThread(someThread(n)) }))
		})
	}
	all.Wait()
}

// A replacement of a data key is stored while readers, who may wait for the key, have all connections.
func TestReplacementWhileAllRead(t *testing.T) {
	url := postgrestest.Database(t)
	first := open(t, Options{URL: url, Handlers: storagetest.Handlers{}})
	reading := open(t, Options{URL: url, Handlers: replacing{}, Connections: 4})
	row := someThread(1)
	row.Metadata = []byte(`{"secret":"x"}`)
	require.NoError(t, first.write(encryption.With(t.Context(), `{"tenant":"a"}`), func(tx *Tx) error { return tx.InsertThread(row) }))
	wrapped := func() (text string) {
		require.NoError(t, keyTable{first}.Rows(t.Context(), "data_key:", "data_key;", func(key, value string) error {
			seal.Forget(key[len(key)-16:])
			text += value
			return nil
		}))
		return text
	}
	was := wrapped()
	for range reading.pool.Config().MaxConns - 1 {
		conn, err := reading.pool.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
	}
	list, err := reading.Threads().Threads(t.Context(), thread.Query{IDs: []id.Thread{row.ID}, Limit: 1})
	require.NoError(t, err)
	require.JSONEq(t, `{"secret":"x"}`, string(list[0].Metadata))
	require.NotEqual(t, was, wrapped())
}

// replacing wants data keys stored in another form.
type replacing struct{ storagetest.Handlers }

func (r replacing) Unwrap(ctx context.Context, list []encryption.Wrapped) ([]encryption.Unwrapped, error) {
	old := slices.Clone(list)
	for i := range old {
		old[i].Key = bytes.TrimPrefix(old[i].Key, []byte("new"))
	}
	out, err := r.Handlers.Unwrap(ctx, old)
	for i := range out {
		if bytes.Equal(old[i].Key, list[i].Key) {
			out[i].Replacement = append([]byte("new"), list[i].Key...)
		}
	}
	return out, err
}

// Servers that open a new database at the same moment all start if their keys are right, and only the first if they have different ones.
func TestKeysOfServersThatStartTogether(t *testing.T) {
	together := func(t *testing.T, of func(n int) Options) (started []*Store, failed []error) {
		t.Helper()
		url := postgrestest.Database(t)
		require.NoError(t, open(t, Options{URL: url}).Close())
		var mu sync.Mutex
		var all sync.WaitGroup
		for n := range 5 {
			all.Go(func() {
				opts := of(n)
				opts.URL, opts.Connections = url, 2
				s, err := Open(t.Context(), opts)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed = append(failed, err)
					return
				}
				started = append(started, s)
			})
		}
		all.Wait()
		return started, failed
	}
	for range 3 {
		started, failed := together(t, func(int) Options { return Options{Handlers: storagetest.Handlers{}} })
		require.Empty(t, failed)
		for n, s := range started { // they read what each other writes
			require.NoError(t, s.write(t.Context(), func(tx *Tx) error { return tx.InsertThread(someThread(n)) }))
		}
		for _, s := range started {
			list, err := s.Threads().Threads(t.Context(), thread.Query{Limit: 100})
			require.NoError(t, err)
			require.Len(t, list, len(started))
		}
		for _, s := range started {
			require.NoError(t, s.Close())
		}
		started, failed = together(t, func(n int) Options { return Options{Keys: [][]byte{fmt.Appendf(nil, "key %d of 16 bytes", n)[:16]}} })
		require.Len(t, started, 1)
		for _, err := range failed {
			require.ErrorContains(t, err, "set it to the key from before")
		}
		for _, s := range started {
			require.NoError(t, s.Close())
		}
	}
}

// Until everything has the new key a server does not start without the one from before, and doctor says so; afterwards it does.
func TestKeysOfAnUnfinishedRotation(t *testing.T) {
	t.Parallel()
	url := postgrestest.Database(t)
	one, two := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	require.NoError(t, open(t, Options{URL: url, Keys: [][]byte{one}}).Close())
	require.NoError(t, open(t, Options{URL: url, Keys: [][]byte{two, one}}).Close())
	for range 2 {
		_, err := Open(t.Context(), Options{URL: url, Keys: [][]byte{two}})
		require.ErrorContains(t, err, "may still be encrypted with key ")
		in, err := Inspect(t.Context(), Options{URL: url}, encryption.Configured{Keys: [][]byte{two}})
		require.NoError(t, err)
		require.ErrorContains(t, in.Locked, "may still be encrypted with key ")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = Encrypt(ctx, Options{URL: url, Keys: [][]byte{two, one}})
		require.Error(t, err)
	}
	_, err := Encrypt(t.Context(), Options{URL: url, Keys: [][]byte{two, one}})
	require.NoError(t, err)
	require.NoError(t, open(t, Options{URL: url, Keys: [][]byte{two}}).Close())
}

// A server that starts with yet another key while everything is encrypted anew leaves the key of before: what was encrypted anew has that one.
func TestKeysLeftDuringARotation(t *testing.T) {
	t.Parallel()
	url := postgrestest.Database(t)
	one, two, three := []byte("0123456789abcdef"), []byte("fedcba9876543210"), []byte("0000000000000000")
	s := open(t, Options{URL: url, Keys: [][]byte{one}})
	require.NoError(t, s.write(t.Context(), func(tx *Tx) error { return tx.InsertThread(someThread(1)) }))
	require.NoError(t, s.Close())
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	hold, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = hold.Exec(t.Context(), "LOCK TABLE threads IN SHARE ROW EXCLUSIVE MODE") // no writes
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := Encrypt(t.Context(), Options{URL: url, Keys: [][]byte{two, one}})
		done <- err
	}()
	require.Eventually(t, func() bool {
		var waiting int
		require.NoError(t, hold.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&waiting))
		return waiting > 0
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, open(t, Options{URL: url, Keys: [][]byte{three, two, one}}).Close())
	require.NoError(t, hold.Rollback(t.Context()))
	require.NoError(t, <-done)
	_, err = Open(t.Context(), Options{URL: url, Keys: [][]byte{three}})
	require.ErrorContains(t, err, "may still be encrypted with key ")
	_, err = Encrypt(t.Context(), Options{URL: url, Keys: [][]byte{three, two, one}})
	require.NoError(t, err)
	require.NoError(t, open(t, Options{URL: url, Keys: [][]byte{three}}).Close())
}

// Reports of servers are read where the database is only inspected, with and without encryption; one whose key is not there has no body.
func TestReportsOfAnEncryptedDatabase(t *testing.T) {
	t.Parallel()
	for _, keys := range [][][]byte{nil, {[]byte("0123456789abcdef")}} {
		url := postgrestest.Database(t)
		s := open(t, Options{URL: url, Keys: keys})
		now := time.Now()
		body := []byte(`{"id":"S","live":"redis mine"}`)
		require.NoError(t, s.Beat(t.Context(), &fleet.Report{Server: "S", At: now, Body: body}, 1, now))
		inspect := func() fleet.Report {
			in, err := Inspect(t.Context(), Options{URL: url}, encryption.Configured{Keys: keys})
			require.NoError(t, err)
			require.Len(t, in.Servers, 1)
			return in.Servers[0]
		}
		require.Equal(t, string(body), string(inspect().Body))
		if keys == nil {
			continue
		}
		ring, err := seal.NewRing(keys)
		require.NoError(t, err)
		other := ring.Seal(body)
		for n := range other[:16] { // the place of the ID of the key is private
			changed := slices.Clone(other)
			changed[n] ^= 0xff
			if _, err := seal.Try(changed); errors.Is(err, seal.ErrUnknownKey) {
				other = changed
				break
			}
		}
		execAll(t, connect(t, url), fmt.Sprintf(`UPDATE servers SET body = '\x%x'`, other))
		require.Equal(t, "S", inspect().Server)
		require.Nil(t, inspect().Body)
	}
}
