package account

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/fault"
)

// reads counts the reads of one user, and can hold them up.
type reads struct {
	Store

	n    atomic.Int32
	mu   sync.Mutex
	user *User // nil: there is none
	err  error
}

func (r *reads) User(context.Context, string) (*User, error) {
	r.n.Add(1)
	time.Sleep(time.Millisecond) // of the bubble: others come meanwhile
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.err != nil:
		return nil, r.err
	case r.user == nil:
		return nil, fault.New(fault.NotFound, "no user")
	}
	u := *r.user
	return &u, nil
}

func (r *reads) set(u *User, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.user, r.err = u, err
}

// However many streams a user has open, its row is read once in a while, and their end is noticed soon: a new password, no user, a token that has expired. A session
// that was accepted since does not end by what was read before.
func TestEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := &reads{user: &User{ID: "ann", Version: 1}}
		s := &Service{Store: store, Tokens: Tokens{Key: []byte("0123456789abcdef0123456789abcdef")}}
		token := func(version int) string {
			text, err := s.Token(&User{ID: "ann", Version: version})
			require.NoError(t, err)
			return text
		}
		first := token(1)
		all := func(token string) (ended int32) {
			var n atomic.Int32
			var streams sync.WaitGroup
			for range 200 {
				streams.Go(func() {
					if s.Ended(ctx, token) {
						n.Add(1)
					}
				})
			}
			streams.Wait()
			return n.Load()
		}
		for range 60 { // a minute of heartbeats each second
			require.Zero(t, all(first))
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, store.n.Load(), int32(13))

		require.Zero(t, all(first))
		store.set(&User{ID: "ann", Version: 2}, nil)
		second := token(2)
		require.Zero(t, all(second), "accepted since")
		require.EqualValues(t, 200, all(first))

		store.set(nil, errors.New("no database"))
		time.Sleep(fresh)
		require.Zero(t, all(second), "it cannot be found out")
		store.set(nil, nil)
		require.EqualValues(t, 200, all(second), "the user is gone")

		store.set(&User{ID: "ann", Version: 3}, nil)
		third := token(3)
		require.Zero(t, all(third))
		time.Sleep(8 * 24 * time.Hour)
		require.EqualValues(t, 200, all(third), "it has expired")
	})
}
