package postgres

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/eventstore"
	"understudy/id"
	"understudy/internal/postgrestest"
)

// tripsTo returns the address of a database over a proxy that counts how often the client asks and
// then waits for an answer.
func tripsTo(t *testing.T, address string) (through string, trips *atomic.Int64) {
	u, err := url.Parse(address)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	trips = &atomic.Int64{}
	target := u.Host
	var conns sync.WaitGroup
	t.Cleanup(conns.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	conns.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				return
			}
			var answered atomic.Bool // since the client asked last
			answered.Store(true)
			conns.Go(func() {
				defer server.Close()
				_, _ = io.Copy(server, eachRead{client, func() {
					if answered.Swap(false) {
						trips.Add(1)
					}
				}})
			})
			conns.Go(func() {
				defer client.Close()
				_, _ = io.Copy(client, eachRead{server, func() { answered.Store(true) }})
			})
		}
	})
	u.Host = listener.Addr().String()
	return u.String(), trips
}

// eachRead calls fn after each read of something.
type eachRead struct {
	net.Conn
	fn func()
}

func (r eachRead) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if n > 0 {
		r.fn()
	}
	return n, err
}

// However many checkpoints are read, the database is asked as often as for one.
func TestTripsOfTranscripts(t *testing.T) {
	t.Parallel()
	address, trips := tripsTo(t, postgrestest.Database(t))
	s := open(t, Options{URL: address})
	const many = 200
	var all []id.Checkpoint
	for n := 1; n <= many; n++ {
		put := growing("t", n)
		require.NoError(t, s.write(t.Context(), func(tx *Tx) error {
			node := eventstore.Node{Whole: 1, Data: []byte{0}}
			if err := tx.PutNode("t", &node); err != nil {
				return err
			}
			return tx.PutTranscriptRow(&eventstore.Row{Thread: "t", Checkpoint: put.ID, Node: node.ID, Version: fmt.Sprint(n)})
		}))
		all = append(all, put.ID)
	}
	count := func(cs []id.Checkpoint) int64 {
		_, err := s.Transcripts(t.Context(), "t", cs) // statements are prepared
		require.NoError(t, err)
		fewest := int64(1 << 60) // others may use the storage, to look after it
		for range 5 {
			before := trips.Load()
			read, err := s.Transcripts(t.Context(), "t", cs)
			require.NoError(t, err)
			fewest = min(fewest, trips.Load()-before)
			for _, c := range cs {
				require.True(t, read.Has(c))
			}
		}
		return fewest
	}
	one, whole := count(all[:1]), count(all)
	require.Positive(t, one)
	require.LessOrEqual(t, whole, one+1) // a large answer may come in pieces while the client sends what ends the read
}
