package seal_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/contain"
	"understudy/internal/encryption"
	"understudy/storage/internal/seal"
)

// handlers encrypt by turning bytes around, and can be made to fail.
type handlers struct {
	wraps, unwraps, asks atomic.Int64
	fail                 atomic.Pointer[func(encryption.Context) error]
	breaks               atomic.Pointer[func(encryption.Context) bool] // for what no key of a question is decrypted
	long                 int                                           // bytes that a wrapped key is longer
}

func (h *handlers) failing(c encryption.Context) error {
	if f := h.fail.Load(); f != nil {
		return (*f)(c)
	}
	return nil
}

var errBroken = errors.New("the process of the handlers ended")

func turned(b []byte) []byte {
	b = slices.Clone(b)
	slices.Reverse(b)
	return b
}

func (h *handlers) Wrap(_ context.Context, of encryption.Context, key []byte) ([]byte, error) {
	h.wraps.Add(1)
	return append(append([]byte(of+"|"), turned(key)...), make([]byte, h.long)...), h.failing(of)
}

func (h *handlers) Unwrap(_ context.Context, list []encryption.Wrapped) ([]encryption.Unwrapped, error) {
	h.asks.Add(1)
	out := make([]encryption.Unwrapped, len(list))
	for i, w := range list {
		h.unwraps.Add(1)
		if breaks := h.breaks.Load(); breaks != nil && (*breaks)(w.Context) {
			return nil, errBroken
		}
		out[i] = encryption.Unwrapped{Key: turned(w.Key[len(w.Context)+1:]), Err: h.failing(w.Context)}
	}
	return out, nil
}

func (h *handlers) Readable(_ context.Context, _ encryption.Context, names []string) ([]bool, error) {
	out := make([]bool, len(names))
	for i, name := range names {
		out[i] = name[0] == 'r'
	}
	return out, h.failing("")
}

func (*handlers) Close() error { return nil }

// table is the table meta.
type table struct {
	mu   sync.Mutex
	rows map[string]string
	read int // rows that were read
}

func (t *table) Rows(_ context.Context, from, below string, fn func(key, value string) error) error {
	t.mu.Lock()
	rows := maps.Clone(t.rows)
	t.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		if key >= from && key < below {
			t.mu.Lock()
			t.read++
			t.mu.Unlock()
			if err := fn(key, rows[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *table) Put(_ context.Context, rows map[string]string, replace bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows == nil {
		t.rows = map[string]string{}
	}
	for key, value := range rows {
		if _, there := t.rows[key]; !there || replace {
			t.rows[key] = value
		}
	}
	return nil
}

func open(t *testing.T, h *handlers, at *table, keys ...[]byte) (*seal.Keyring, error) {
	t.Helper()
	return seal.OpenKeyring(t.Context(), seal.Settings{Keys: keys, Handlers: h, Log: slog.New(slog.DiscardHandler)}, at)
}

func in(t *testing.T, c encryption.Context) context.Context { return encryption.With(t.Context(), c) }

// sealedIn encrypts a text in a context, and returns the ID of its key too.
func sealedIn(t *testing.T, k *seal.Keyring, c encryption.Context) (sealed []byte, id string) {
	t.Helper()
	ring, err := k.For(in(t, c))
	require.NoError(t, err)
	return ring.Seal([]byte("text of " + string(c))), ring.ID()
}

func opened(k *seal.Keyring, ctx context.Context, b []byte) (out []byte, err error) { //nolint:revive // the keyring is the subject
	defer seal.Recovered(&err)
	return k.Open(ctx, slices.Clone(b), seal.Open), nil
}

// Whatever the order in which servers make and meet contexts, each reads what another one wrote, and handlers are asked once for each key.
func TestServersReadEachOther(t *testing.T) {
	h, at := &handlers{}, &table{}
	one, err := open(t, h, at)
	require.NoError(t, err)
	two, err := open(t, h, at)
	require.NoError(t, err)
	require.Equal(t, one.ID(), two.ID())
	for i := range 20 {
		c := encryption.Context(fmt.Sprintf(`{"tenant":%d}`, i))
		writer, reader := one, two
		if i%2 == 0 {
			writer, reader = two, one
		}
		b, id := sealedIn(t, writer, c)
		seal.Forget(id) // as in another process
		unknown := seal.UnknownKey("")
		_, err := seal.Try(slices.Clone(b))
		require.ErrorAs(t, err, &unknown)
		if i%3 == 0 { // inside of a transaction
			again, err := reader.Again(t.Context(), fmt.Errorf("in a transaction: %w", err))
			require.True(t, again)
			require.NoError(t, err)
		}
		out, err := opened(reader, t.Context(), b)
		require.NoError(t, err)
		require.Equal(t, "text of "+string(c), string(out))
		_, same := sealedIn(t, reader, c)
		require.Equal(t, id, same)
	}
	require.Equal(t, int64(21), h.wraps.Load())
}

// 500 requests of 50 new contexts make 50 keys.
func TestKeysAreMadeOnce(t *testing.T) {
	h, at := &handlers{}, &table{}
	k, err := open(t, h, at)
	require.NoError(t, err)
	var all sync.WaitGroup
	for i := range 500 {
		all.Go(func() { sealedIn(t, k, encryption.Context(fmt.Sprintf(`{"n":%d}`, i%50))) })
	}
	all.Wait()
	require.Equal(t, int64(51), h.wraps.Load())
	h.asks.Store(0)
	for key := range at.rows {
		seal.Forget(key[len(key)-16:])
	}
	_, err = open(t, h, at)
	require.NoError(t, err)
	require.Equal(t, int64(2), h.asks.Load(), "a start asks for the key that it needs, and for up to 100 others at once")
}

// Whichever keys make a question fail, the keyring opens after few questions, and the content of all other contexts can be read and written.
func TestKeysThatBreakQuestions(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		h, at := &handlers{}, &table{}
		k, err := open(t, h, at)
		require.NoError(t, err)
		sealed, bad := map[encryption.Context][]byte{}, map[encryption.Context]bool{}
		for i := range 350 {
			c := encryption.Context(fmt.Sprintf(`{"n":%d}`, i))
			b, id := sealedIn(t, k, c)
			seal.Forget(id)
			sealed[c], bad[c] = b, random.IntN(60) == 0
		}
		breaks := func(c encryption.Context) bool { return bad[c] }
		h.breaks.Store(&breaks)
		h.asks.Store(0)
		k, err = open(t, h, at)
		require.NoError(t, err)
		require.LessOrEqual(t, h.asks.Load(), int64(5))
		for c, b := range sealed {
			out, err := opened(k, t.Context(), b)
			_, forErr := k.For(in(t, c))
			if bad[c] {
				require.Error(t, err)
				require.Error(t, forErr)
				continue
			}
			require.NoError(t, err)
			require.NoError(t, forErr)
			require.Equal(t, "text of "+string(c), string(out))
		}
	}
	h, at := &handlers{}, &table{}
	_, err := open(t, h, at)
	require.NoError(t, err)
	breaks := func(encryption.Context) bool { return true }
	h.breaks.Store(&breaks)
	for key := range at.rows {
		seal.Forget(key[len(key)-16:])
	}
	_, err = open(t, h, at)
	require.ErrorIs(t, err, errBroken, "nothing works without the key of the empty context")
}

// Meeting a key of another server reads its rows only, however many there are; so does one of a database from before there were rows of IDs, once it has been read.
func TestKeysAreFoundByID(t *testing.T) {
	h, at := &handlers{}, &table{}
	one, err := open(t, h, at)
	require.NoError(t, err)
	two, err := open(t, h, at)
	require.NoError(t, err)
	for i := range 1000 {
		b, id := sealedIn(t, one, encryption.Context(fmt.Sprintf(`{"n":%d}`, i)))
		seal.Forget(id)
		at.read = 0
		_, err := opened(two, t.Context(), b)
		require.NoError(t, err)
		require.LessOrEqual(t, at.read, 2)
	}
	b, id := sealedIn(t, one, `{"n":"last"}`)
	delete(at.rows, "data_key_id:"+id)
	seal.Forget(id)
	_, err = opened(two, t.Context(), b)
	require.NoError(t, err)

	native := ring(t, "0123456789abcdef")
	b = native.Seal([]byte("x"))
	seal.Forget(native.ID())
	at.read = 0
	for range 100 {
		_, err = opened(two, t.Context(), b)
		require.ErrorIs(t, err, seal.ErrUnknownKey)
	}
	require.LessOrEqual(t, at.read, len(at.rows), "a missing key is looked up once")
}

// A form of a key that is too long is not stored.
func TestLongKeys(t *testing.T) {
	h, at := &handlers{}, &table{}
	k, err := open(t, h, at)
	require.NoError(t, err)
	rows := len(at.rows)
	h.long = 65 << 10
	_, err = k.For(in(t, `{"t":"a"}`))
	require.ErrorContains(t, err, "more than 65536 bytes")
	require.Len(t, at.rows, rows)
}

// A key that handlers do not return as it was is never used.
func TestKeysThatAreRefused(t *testing.T) {
	h, at := &handlers{}, &table{}
	k, err := open(t, h, at)
	require.NoError(t, err)
	a, _ := sealedIn(t, k, `{"t":"a"}`)
	b, idB := sealedIn(t, k, `{"t":"b"}`)
	refuse := func(c encryption.Context) error {
		if c == `{"t":"b"}` {
			return errors.New("withdrawn")
		}
		return nil
	}
	h.fail.Store(&refuse)
	k, err = open(t, h, at)
	require.NoError(t, err, "other contexts work")
	_, err = opened(k, t.Context(), a)
	require.NoError(t, err)
	_, err = opened(k, t.Context(), b)
	require.ErrorIs(t, err, seal.ErrUnknownKey)
	_, err = k.For(in(t, `{"t":"b"}`))
	require.Error(t, err)
	wraps := h.wraps.Load()
	_, err = k.For(in(t, `{"t":"b"}`))
	require.Error(t, err, "nor is there another key for the context")
	require.Equal(t, wraps, h.wraps.Load())
	h.fail.Store(nil)
	_, same := sealedIn(t, k, `{"t":"b"}`)
	require.Equal(t, idB, same)

	for row, value := range at.rows { // someone puts one key in the place of another
		if row[len(row)-16:] == idB {
			at.rows[row] = value[:len(value)-2] + base64.StdEncoding.EncodeToString([]byte("xxxxxx")) + `"}`
		}
	}
	seal.Forget(idB)
	k, err = open(t, h, at)
	if err == nil { // the row may be damaged, or have another key
		_, err = opened(k, t.Context(), b)
	}
	require.Error(t, err)
}

// Without the handlers, and with another key, the database does not open; native keys of before stay readable.
func TestCheckOfHandlers(t *testing.T) {
	h, at := &handlers{}, &table{}
	native := ring(t, "0123456789abcdef")
	note, err := native.Check("")
	require.NoError(t, err)
	k, err := open(t, h, at, []byte("0123456789abcdef"))
	require.NoError(t, err)
	changed, err := k.Check(t.Context(), note)
	require.NoError(t, err)
	require.Equal(t, k.ID(), seal.KeyOf(changed))
	same, err := k.Check(t.Context(), changed)
	require.NoError(t, err)
	require.Equal(t, changed, same)
	for _, keys := range [][][]byte{nil, {[]byte("0123456789abcdef")}} {
		without, err := seal.OpenKeyring(t.Context(), seal.Settings{Keys: keys, Log: slog.New(slog.DiscardHandler)}, at)
		require.NoError(t, err)
		_, err = without.Check(t.Context(), changed)
		require.ErrorContains(t, err, "encryption.path")
	}
	ring, err := k.For(t.Context())
	require.NoError(t, err)
	require.True(t, ring.Current(ring.Seal([]byte("x"))))
	other, _ := sealedIn(t, k, `{"t":"b"}`)
	require.True(t, ring.Current(other), "understudy encrypt leaves what another context has")
	require.False(t, ring.Current(native.Seal([]byte("x"))))
}

// Only what handlers leave readable is in the index, and all servers decide alike.
func TestNamesOfMetadata(t *testing.T) {
	h, at := &handlers{}, &table{}
	one, err := open(t, h, at)
	require.NoError(t, err)
	two, err := open(t, h, at)
	require.NoError(t, err)
	terms := []contain.Term{{Key: "readable", Value: "1"}, {Key: "secret", Value: "2"}, {Key: "graph_id", Value: "3"}}
	_, err = one.Index(terms)
	var names seal.Undecided
	require.ErrorAs(t, err, &names)
	require.Equal(t, seal.Undecided{"readable", "secret"}, names)
	require.True(t, one.Hidden()("readable"), "a search does not rely on an index that may lack it")
	failing := func(encryption.Context) error { return errors.New("down") }
	h.fail.Store(&failing)
	again, err := one.Again(t.Context(), fmt.Errorf("in a transaction: %w", names))
	require.False(t, again)
	require.Error(t, err)
	h.fail.Store(nil)
	again, err = one.Again(t.Context(), fmt.Errorf("in a transaction: %w", names))
	require.True(t, again)
	require.NoError(t, err)
	indexed, err := one.Index(terms)
	require.NoError(t, err)
	require.Equal(t, []contain.Term{terms[0], terms[2]}, indexed)
	require.False(t, one.Hidden()("readable"))
	require.True(t, one.Hidden()("secret"))
	for _, odd := range []string{"r" + strings.Repeat("x", 5000), "r\x00"} { // which no database keeps in an index
		require.NoError(t, one.Learn(t.Context(), []string{odd}))
		require.True(t, one.Hidden()(odd))
		indexed, err := one.Index([]contain.Term{{Key: odd, Value: "1"}})
		require.NoError(t, err)
		require.Empty(t, indexed)
	}
	require.NoError(t, two.Learn(t.Context(), []string{"readable"}))
	indexed, err = two.Index(terms)
	require.NoError(t, err)
	require.Len(t, indexed, 2)
}
