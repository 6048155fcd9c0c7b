package postgres

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/internal/fleet"
	"understudy/internal/logtest"
	"understudy/internal/postgrestest"
	"understudy/storage/internal/seal"
	"understudy/storage/storagetest"
	"understudy/thread"
)

// A key that servers which run could not read is not begun with, neither by a server nor by Encrypt, and an inspection agrees; when they have left, or have it, it is.
func TestNewKeyWhileServersRunWithoutIt(t *testing.T) {
	t.Parallel()
	one, two := []byte("the first of two"), []byte("the other of two")
	none := [][]byte(nil)
	for name, c := range map[string]struct {
		was, others, is [][]byte // keys of the database, of the servers that run, and of the one that starts
		handlers        bool
		want            string
	}{
		"begins":                   {none, none, [][]byte{one}, false, "the database is not encrypted yet, and servers run on it without the key"},
		"begins with handlers":     {none, none, none, true, "the database is not encrypted yet, and servers run on it without the key"},
		"another key":              {[][]byte{one}, [][]byte{one}, [][]byte{two, one}, false, "without the new key"},
		"another key that is read": {[][]byte{one}, [][]byte{one, two}, [][]byte{two, one}, false, ""},
		"handlers":                 {[][]byte{one}, [][]byte{one}, [][]byte{one}, true, "without the new key"},
		"the same key":             {[][]byte{one}, [][]byte{one}, [][]byte{one}, false, ""},
		"no key":                   {none, none, none, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := postgrestest.Database(t)
			require.NoError(t, open(t, Options{URL: url, Keys: c.was}).Close())
			other := open(t, Options{URL: url, Keys: c.others})
			body, err := json.Marshal(fleet.Server{ID: "other", Host: "machine", Keys: other.ReadingKeys()})
			require.NoError(t, err)
			beat := func(at time.Time) {
				require.NoError(t, other.Beat(t.Context(), &fleet.Report{Server: "other", At: at, Body: body}, 1, at))
			}
			options := func() Options {
				o := Options{URL: url, Keys: c.is}
				if c.handlers {
					o.Handlers = storagetest.Handlers{}
				}
				return o
			}
			start := func() error {
				s, err := Open(t.Context(), options())
				if err != nil {
					return err
				}
				return s.Close()
			}
			configured := encryption.Configured{Keys: c.is, Handlers: c.handlers}
			beat(time.Now())
			if c.want != "" {
				for range 2 { // it leaves nothing behind
					beat(time.Now())
					in, err := Inspect(t.Context(), Options{URL: url}, configured)
					require.NoError(t, err)
					require.ErrorContains(t, in.Locked, c.want)
					require.ErrorContains(t, in.Locked, "other on machine")
					require.Equal(t, len(c.was) == 0, in.Begins)
					require.ErrorContains(t, start(), in.Locked.Error())
					beat(time.Now())
					_, err = Encrypt(t.Context(), options())
					require.ErrorContains(t, err, c.want)
				}
				beat(time.Now().Add(-fleet.Lately - time.Second))
			}
			in, err := Inspect(t.Context(), Options{URL: url}, configured)
			require.NoError(t, err)
			require.NoError(t, in.Locked)
			require.NoError(t, start())
		})
	}
}

// A server that meets content whose key it does not have is not ready, and answers with the reason; it logs that once.
func TestServerWithoutTheKeyIsNotReady(t *testing.T) {
	t.Parallel()
	url := postgrestest.Database(t)
	var log logtest.Buffer
	plain := open(t, Options{URL: url, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, plain.Ping(t.Context()))
	key := fmt.Appendf(nil, "key that is lost")
	keyed := open(t, Options{URL: url, Keys: [][]byte{key}})
	require.NoError(t, keyed.write(t.Context(), func(tx *Tx) error { return tx.InsertThread(someThread(1)) }))
	id := keyed.ReadingKeys()[0]
	require.NoError(t, plain.Ping(t.Context())) // keys are those of the process
	require.NoError(t, keyed.Close())
	seal.Forget(id)
	want := "encrypted with key " + id + ", which this server does not have"
	_, err := plain.Threads().Threads(t.Context(), thread.Query{Limit: 10})
	for _, err := range []error{err, plain.Ping(t.Context())} {
		require.Equal(t, fault.Unavailable, fault.KindOf(err))
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, 1, strings.Count(log.String(), want), log.String())
}
