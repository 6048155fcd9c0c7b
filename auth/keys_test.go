package auth_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/auth"
	"understudy/internal/fault"
)

// memory is a store that counts questions.
type memory struct {
	mu    sync.Mutex
	keys  map[string]auth.Key
	asked int
	fails error
	hold  chan struct{}             // not nil: questions wait for it
	uses  chan map[string]time.Time // not nil: gets what UseKeys is called with, which then waits for noted
	noted chan error
}

func (m *memory) InsertKey(_ context.Context, k *auth.Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys[k.ID] = *k
	return nil
}

func (m *memory) KeysOfIdentity(_ context.Context, identity string) (list []*auth.Key, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.keys {
		if k.Identity == identity {
			list = append(list, &k)
		}
	}
	return list, m.fails
}

func (m *memory) KeysOf(ctx context.Context, ids []string) (list []*auth.Key, err error) {
	m.mu.Lock()
	hold := m.hold
	m.asked++
	m.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		if k, ok := m.keys[id]; ok {
			list = append(list, &k)
		}
	}
	return list, m.fails
}

func (m *memory) Keys(context.Context) ([]*auth.Key, error) { return nil, nil }

func (m *memory) change(id string, fn func(*auth.Key)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.keys[id]
	fn(&k)
	m.keys[id] = k
	return nil
}

func (m *memory) ExpireKey(_ context.Context, id string, at time.Time) error {
	return m.change(id, func(k *auth.Key) { k.ExpiresAt = at })
}

func (m *memory) RevokeKey(_ context.Context, id string, at time.Time) error {
	return m.change(id, func(k *auth.Key) { k.RevokedAt = at })
}

func (m *memory) UseKeys(ctx context.Context, used map[string]time.Time) error {
	if m.uses != nil {
		m.uses <- used
		select {
		case err := <-m.noted:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for id, at := range used {
		_ = m.change(id, func(k *auth.Key) { k.UsedAt = at })
	}
	return nil
}

// status is that of the refusal in an error, 200 without one.
func status(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return http.StatusOK
	}
	var r *access.Refusal
	require.ErrorAs(t, err, &r)
	return r.Status
}

// Over any order of events a key opens while it is valid, and at most Fresh after it was revoked, and no other text ever does.
func TestKeysFollowTheStore(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		now := time.Unix(1e9, 0)
		store := &memory{keys: map[string]auth.Key{}}
		keys := auth.NewKeys(store, func() time.Time { return now }, nil)
		type made struct {
			auth.Key
			text string
		}
		var all []made
		for step := range 300 {
			switch r.IntN(8) {
			case 0:
				var end time.Time
				if r.IntN(2) == 0 {
					end = now.Add(time.Duration(r.IntN(60)) * time.Second)
				}
				k, text := auth.New("n", fmt.Sprint("user", r.IntN(3)), []string{auth.Read}, now, end)
				require.NoError(t, store.InsertKey(t.Context(), k))
				all = append(all, made{*k, text})
			case 1:
				if len(all) > 0 {
					k := &all[r.IntN(len(all))]
					if k.RevokedAt.IsZero() {
						k.RevokedAt = now
						require.NoError(t, store.RevokeKey(t.Context(), k.ID, now))
					}
				}
			case 2:
				now = now.Add(time.Duration(r.IntN(4000)) * time.Millisecond)
			default:
				if len(all) == 0 {
					continue
				}
				k := all[r.IntN(len(all))]
				who, err := keys.Authenticate(t.Context(), k.text)
				expired := !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt)
				switch {
				case expired, !k.RevokedAt.IsZero() && now.Sub(k.RevokedAt) >= auth.Fresh:
					require.Equal(t, http.StatusUnauthorized, status(t, err), "seed %d, step %d", seed, step)
				case k.RevokedAt.IsZero():
					require.NoError(t, err, "seed %d, step %d", seed, step)
					require.Equal(t, k.Identity, who.Identity)
					require.Equal(t, []string{auth.Read}, who.Permissions)
				}
				wrong := []byte(k.text) // one that was just accepted, but for a character
				wrong[r.IntN(len(wrong))] ^= 1
				_, err = keys.Authenticate(t.Context(), string(wrong))
				require.Equal(t, http.StatusUnauthorized, status(t, err))
				other := all[r.IntN(len(all))]
				if other.ID != k.ID { // the ID of one with the secret of another
					_, err := keys.Authenticate(t.Context(), k.text[:20]+other.text[20:])
					require.Equal(t, http.StatusUnauthorized, status(t, err))
				}
			}
		}
	}
}

// Texts that are no keys cost no question to the database, and made-up ones few.
func TestMadeUpKeys(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	store := &memory{keys: map[string]auth.Key{}}
	keys := auth.NewKeys(store, func() time.Time { return now }, nil)
	_, text := auth.New("n", "i", nil, now, time.Time{})
	for i := range len(text) {
		for _, c := range []byte{'x', '_', 0, 0xff} {
			changed := []byte(text)
			if changed[i] == c {
				continue
			}
			changed[i] = c
			_, err := keys.Authenticate(t.Context(), string(changed))
			require.Equal(t, http.StatusUnauthorized, status(t, err))
		}
		_, err := keys.Authenticate(t.Context(), text[:i])
		require.Equal(t, http.StatusUnauthorized, status(t, err))
	}
	_, err := keys.Authenticate(t.Context(), strings.Repeat("us_", 1<<20))
	require.Equal(t, http.StatusUnauthorized, status(t, err))
	require.Zero(t, store.asked)
}

// However many made-up keys are sent, the database has one question at a time, and a key that exists waits for two.
func TestMadeUpKeysHoldUpNobody(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	hold := make(chan struct{})
	store := &memory{keys: map[string]auth.Key{}, hold: hold}
	keys := auth.NewKeys(store, func() time.Time { return now }, nil)
	asked := func() int { store.mu.Lock(); defer store.mu.Unlock(); return store.asked }
	var all sync.WaitGroup
	made := func(ctx context.Context, want int) {
		_, text := auth.New("n", "i", nil, now, time.Time{})
		all.Go(func() {
			_, err := keys.Authenticate(ctx, text)
			if want != 0 && status(t, err) != want {
				t.Error(err)
			}
		})
	}
	made(t.Context(), http.StatusUnauthorized)
	require.Eventually(t, func() bool { return asked() == 1 }, 10*time.Second, time.Millisecond)
	left, leave := context.WithCancel(t.Context())
	for i := range 400 {
		if i%2 == 0 {
			made(left, 0)
		} else {
			made(t.Context(), http.StatusUnauthorized)
		}
	}
	require.Eventually(t, func() bool { return keys.Waiting() == 400 }, 10*time.Second, time.Millisecond)
	k, text := auth.New("n", "ada", nil, now, time.Time{})
	require.NoError(t, store.InsertKey(t.Context(), k))
	all.Go(func() {
		if who, err := keys.Authenticate(t.Context(), text); err != nil || who.Identity != "ada" {
			t.Error(who, err)
		}
	})
	require.Eventually(t, func() bool { return keys.Waiting() == 401 }, 10*time.Second, time.Millisecond)
	leave() // clients that disconnect delay no others, whichever of them asks
	close(hold)
	all.Wait()
	require.Equal(t, 2, asked())
	require.Zero(t, keys.Waiting())

	for range 5000 { // keys that exist, as after a restart, when none is in memory
		k, text := auth.New("n", "i", nil, now, time.Time{})
		require.NoError(t, store.InsertKey(t.Context(), k))
		_, err := keys.Authenticate(t.Context(), text)
		require.NoError(t, err)
	}
}

func TestKeysWithoutADatabase(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	store := &memory{keys: map[string]auth.Key{}}
	keys := auth.NewKeys(store, func() time.Time { return now }, nil)
	k, text := auth.New("n", "i", nil, now, time.Time{})
	require.NoError(t, store.InsertKey(t.Context(), k))
	_, err := keys.Authenticate(t.Context(), text)
	require.NoError(t, err)
	store.fails = errors.New("gone")
	_, err = keys.Authenticate(t.Context(), text)
	require.NoError(t, err, "it was read a moment ago")
	now = now.Add(auth.Fresh)
	_, err = keys.Authenticate(t.Context(), text)
	require.Equal(t, fault.Unavailable, fault.KindOf(err), "it fails closed")
	store.fails = fmt.Errorf("keys: %w", fault.New(fault.Unavailable, "the database cannot be reached"))
	_, err = keys.Authenticate(t.Context(), text)
	require.ErrorContains(t, err, "API keys cannot be checked now: the database cannot be reached", "the client learns why")
	store.fails = nil
	_, err = keys.Authenticate(t.Context(), text)
	require.NoError(t, err)
}

func TestKeysAtOnce(t *testing.T) {
	t.Parallel()
	store := &memory{keys: map[string]auth.Key{}}
	var mu sync.Mutex
	now := time.Unix(1e9, 0)
	keys := auth.NewKeys(store, func() time.Time { mu.Lock(); defer mu.Unlock(); now = now.Add(time.Millisecond); return now }, nil)
	k, text := auth.New("n", "i", nil, now, time.Time{})
	require.NoError(t, store.InsertKey(t.Context(), k))
	_, err := keys.Authenticate(t.Context(), text)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 2000 {
				if _, err := keys.Authenticate(t.Context(), text); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Less(t, store.asked, 200, "the store is asked every five seconds, not for each request")
}

// No request waits until the use of its key is written. What was noted meanwhile is one write, nothing is lost when one fails, and the last is made at the end.
func TestUseIsWrittenOutsideOfRequests(t *testing.T) {
	t.Parallel()
	store := &memory{keys: map[string]auth.Key{}, uses: make(chan map[string]time.Time), noted: make(chan error)}
	now := time.Unix(1e9, 0)
	keys := auth.NewKeys(store, func() time.Time { return now }, nil)
	var texts []string
	var ids []string
	for range 50 {
		k, text := auth.New("n", "i", nil, now, time.Time{})
		require.NoError(t, store.InsertKey(t.Context(), k))
		texts, ids = append(texts, text), append(ids, k.ID)
	}
	use := func(from, below int) {
		for _, text := range texts[from:below] {
			_, err := keys.Authenticate(t.Context(), text)
			require.NoError(t, err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- keys.Run(ctx) }()
	use(0, 1)
	require.Equal(t, map[string]time.Time{ids[0]: now}, <-store.uses)
	use(0, 40) // while the database does not answer; the first was used just now
	store.noted <- errors.New("gone")
	first := <-store.uses
	require.Len(t, first, 40)
	require.Contains(t, first, ids[0], "a write that failed is made again")
	use(40, 50)
	stop()
	last := map[string]time.Time{}
	for len(last) < 50 { // the write that was open has ended with the context
		uses := <-store.uses
		for id, at := range uses {
			last[id] = at
		}
		store.noted <- nil
	}
	require.NoError(t, <-ended)
	for _, id := range ids {
		require.Equal(t, now, store.keys[id].UsedAt)
	}
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	who := func(permissions ...string) *access.Actor {
		return &access.Actor{Identity: "ada", Permissions: permissions}
	}
	owned, shared := auth.Policy{Owner: &access.Owner{Key: "owner"}}, auth.Policy{}
	actions := map[string][]string{
		access.Threads: {"create", "read", "update", "delete", "search", "create_run"}, access.Assistants: {"create", "read", "update", "delete", "search"},
		access.Crons: {"create", "read", "update", "delete", "search"}, access.Store: {"put", "get", "search", "delete", "list_namespaces"},
	}
	reads := []string{"read", "search", "get", "list_namespaces"}
	for resource, list := range actions {
		for _, action := range list {
			q := access.Question{Resource: resource, Action: action, Value: []byte(`{"namespace":["ada"],"metadata":{"owner":"bob"}}`)}
			for _, p := range []auth.Policy{owned, shared} {
				_, err := p.Decide(t.Context(), who(auth.Read), q)
				if slices.Contains(reads, action) {
					require.NoError(t, err, "%s.%s", resource, action)
				} else {
					require.Equal(t, http.StatusForbidden, status(t, err), "%s.%s", resource, action)
				}
			}
			for _, as := range []*access.Actor{who(auth.Read), who(auth.Write), who("email", "profile"), who(), who(auth.Admin)} { // Select says the same
				for _, p := range []auth.Policy{owned, shared} {
					if resource != access.Store && slices.Contains([]string{"create", "update", "create_run"}, action) { // and so does Stamp
						for _, metadata := range []string{`{}`, `{"a":1,"owner":"bob"}`, `{"created_by":"system"}`} {
							q := access.Question{Resource: resource, Action: action, Value: []byte(`{"metadata":` + metadata + `}`)}
							d, refused := p.Decide(t.Context(), as, q)
							stored, f, err := p.Stamp(as, resource, action, []byte(metadata))
							require.Equal(t, refused, err, "%s.%s", resource, action)
							if err != nil {
								continue
							}
							if want := gjson.GetBytes(d[0].Value, "metadata"); want.Exists() {
								require.Equal(t, want.Raw, string(stored), "%s.%s %s", resource, action, metadata)
							} else {
								require.Equal(t, metadata, string(stored), "%s.%s", resource, action)
							}
							want, err := access.ParseFilter(d[0].Filter)
							require.NoError(t, err)
							for _, metadata := range []string{`{}`, `{"owner":"ada"}`, `{"owner":"bob"}`} {
								require.Equal(t, want.Match([]byte(metadata)), f.Match([]byte(metadata)), "%s.%s %s", resource, action, metadata)
							}
						}
					}
					selected, ok := p.Select(as, resource, action)
					if !ok {
						continue
					}
					d, err := p.Decide(t.Context(), as, q)
					require.NoError(t, err, "%s.%s", resource, action)
					want, err := access.ParseFilter(d[0].Filter)
					require.NoError(t, err)
					for _, metadata := range []string{`{}`, `{"owner":"ada"}`, `{"owner":"bob"}`, `{"owner":"bob","created_by":"system"}`} {
						require.Equal(t, want.Match([]byte(metadata)), selected.Match([]byte(metadata)), "%s.%s %s", resource, action, metadata)
					}
				}
			}
			for _, as := range []*access.Actor{who(auth.Write), who("email", "profile"), who()} {
				d, err := owned.Decide(t.Context(), as, q)
				require.NoError(t, err)
				if resource != access.Store {
					require.Contains(t, string(d[0].Filter), `"owner":"ada"`)
				}
				d, err = shared.Decide(t.Context(), as, q)
				require.NoError(t, err)
				require.Equal(t, access.Decision{}, d[0])
			}
			d, err := owned.Decide(t.Context(), who(auth.Admin), q)
			require.NoError(t, err)
			require.Nil(t, d[0].Filter, "%s.%s", resource, action)
			if action == "create" {
				require.Contains(t, string(d[0].Value), `"owner":"ada"`)
			}
		}
	}
	other := access.Question{Resource: access.Store, Action: "put", Value: []byte(`{"namespace":["bob"]}`)}
	_, err := owned.Decide(t.Context(), who(auth.Write), other)
	require.Equal(t, http.StatusForbidden, status(t, err))
	_, err = owned.Decide(t.Context(), who(auth.Admin), other)
	require.NoError(t, err)
}

// The last eight characters of a key are its CRC-32, as in keys that were made before; checking a key that is known takes no memory.
func TestChecksumOfKeys(t *testing.T) { //nolint:paralleltest // it counts allocations
	store := &memory{keys: map[string]auth.Key{}}
	keys := auth.NewKeys(store, time.Now, nil)
	for range 100 {
		k, text := auth.New("a", "ada", []string{auth.Write}, time.Now(), time.Time{})
		require.NoError(t, store.InsertKey(t.Context(), k))
		require.Equal(t, fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(text[:len(text)-8]))), text[len(text)-8:])
		_, err := keys.Authenticate(t.Context(), text)
		require.NoError(t, err)
		require.Less(t, testing.AllocsPerRun(10, func() { _, _ = keys.Authenticate(t.Context(), text) }), 1.0)
		for _, wrong := range []string{text + "0", text[:len(text)-1], text + strings.Repeat("0", 200), strings.Repeat(text, 3)} {
			_, err := keys.Authenticate(t.Context(), wrong)
			require.Error(t, err)
		}
	}
}

// Open answers learn that the key of their request was revoked, and nothing else: not while the database is away.
func TestKeysOfOpenAnswers(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	store := &memory{keys: map[string]auth.Key{}}
	native := &auth.Native{Keys: auth.NewKeys(store, func() time.Time { return now }, nil)}
	k, text := auth.New("n", "ann", nil, now, time.Time{})
	require.NoError(t, store.InsertKey(t.Context(), k))
	var withdrawn []func(context.Context) bool
	for _, h := range []http.Header{{"X-Api-Key": {text}}, {"Authorization": {"Bearer " + text}}} {
		withdrawn = append(withdrawn, native.Follow(&access.Request{Header: h}))
	}
	for _, h := range []http.Header{{"Authorization": {"Bearer a.b.c"}}, {"Cookie": {"understudy_session=x"}}, {}} {
		require.Nil(t, native.Follow(&access.Request{Header: h}))
	}
	for _, f := range withdrawn {
		require.False(t, f(t.Context()))
	}
	require.NoError(t, store.RevokeKey(t.Context(), k.ID, now))
	now = now.Add(auth.Fresh)
	store.fails = errors.New("gone")
	for _, f := range withdrawn {
		require.False(t, f(t.Context()), "it cannot be asked")
	}
	store.fails = nil
	for _, f := range withdrawn {
		require.True(t, f(t.Context()))
	}
	require.Nil(t, (&auth.Native{Sessions: &auth.Sessions{}}).Follow(&access.Request{Header: http.Header{}}), "who has no session, as an internal caller")
	require.Nil(t, (&auth.Native{}).Follow(&access.Request{Header: http.Header{"X-Api-Key": {text}}}))
}
