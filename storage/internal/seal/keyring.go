package seal

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"understudy/internal/cache"
	"understudy/internal/contain"
	"understudy/internal/encryption"
	"understudy/internal/fault"
)

const (
	// maxContexts bounds the data keys of a database.
	maxContexts = 100_000
	// maxNames bounds the names of metadata that are decided about, and maxName the bytes of each: Postgres has them in an index. Others are hidden.
	maxNames = 10_000
	maxName  = 512
	// maxWrapped bounds the bytes of a data key as handlers encrypt it.
	maxWrapped = 64 << 10
	// maxRings bounds the rings in memory.
	maxRings = 4096
	// unwrapAtOnce is how many data keys one question to the handlers has.
	unwrapAtOnce = 100
	// refusedFor is how long a data key that could not be decrypted is not tried again.
	refusedFor = 5 * time.Second
)

// Keyring has a ring for each encryption.Context. nil encrypts nothing. It is safe for concurrent use.
type Keyring struct {
	fixed     *Ring // without handlers, for all contexts
	handlers  encryption.Handlers
	table     Table
	unindexed []string // keys of metadata that are kept out of the index in any case
	log       *slog.Logger

	rings  *cache.Cache[encryption.Context, *Ring]
	flight singleflight.Group

	mu      sync.RWMutex
	newest  map[encryption.Context]string // IDs of data keys
	ids     map[string]bool               // of all data keys that are usable
	refused map[string]time.Time          // IDs of data keys that could not be decrypted, and when
	names   map[string]bool               // of metadata: whether it is readable
}

// Settings are what a Keyring is made of.
type Settings struct {
	Keys      [][]byte            // of LANGGRAPH_AES_KEY. With Handlers they only decrypt
	Handlers  encryption.Handlers // nil: none. Close closes them
	Unindexed []string            // keys of threads' metadata that are kept out of the index
	Log       *slog.Logger
}

// errHandlers: a database needs handlers that are not configured.
var errHandlers = errors.New("the database is encrypted with data keys that handlers in Python encrypt: name them in encryption.path of langgraph.json")

var errTooLong = fmt.Errorf("a data key that encryption.path encrypted has more than %d bytes; nothing is written", maxWrapped)

// OpenKeyring returns the keyring of a database; one that encrypts nothing without keys and handlers. Handlers decrypt the data keys that the table has.
func OpenKeyring(ctx context.Context, s Settings, t Table) (*Keyring, error) {
	fixed, err := NewRing(s.Keys)
	if err != nil {
		return nil, err
	}
	k := &Keyring{
		fixed: fixed, handlers: s.Handlers, table: t, unindexed: s.Unindexed, log: s.Log, rings: cache.New[encryption.Context, *Ring](maxRings),
		newest: map[encryption.Context]string{}, ids: map[string]bool{}, refused: map[string]time.Time{},
	}
	if k.handlers == nil {
		return k, nil
	}
	if k.names, err = names(ctx, t); err != nil {
		return nil, err
	}
	list, err := dataKeys(ctx, t, dataKeyRows)
	if err != nil {
		return nil, err
	}
	// First the key that everything needs. The others are decrypted now so that requests do not wait for it; one for which handlers hang or die must not stop
	// the rest, and no start may take one deadline for each of many: then keys are decrypted when they are needed.
	if _, err := k.For(encryption.With(ctx, "")); err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(d DataKey) bool { return d.Context == "" })
	for part := range slices.Chunk(list, unwrapAtOnce) {
		if err := k.unwrap(ctx, part); err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			k.log.ErrorContext(ctx, "the handlers of encryption.path did not decrypt the data keys of all contexts; they are asked again when a key is needed", "error", err)
			break
		}
	}
	return k, nil
}

// LoadDataKeys makes the data keys of a database that is only read usable.
func LoadDataKeys(ctx context.Context, h encryption.Handlers, t Table) error {
	_, err := OpenKeyring(ctx, Settings{Handlers: h, Log: slog.New(slog.DiscardHandler)}, readOnly{t})
	if errors.Is(err, errReadOnly) { // there is no data key yet
		return nil
	}
	return err
}

var errReadOnly = errors.New("the database is only read")

type readOnly struct{ Table }

func (readOnly) Put(context.Context, map[string]string, bool) error { return errReadOnly }

// Use replaces the table, such as by one that the finished store has. Call it before the keyring is shared.
func (k *Keyring) Use(t Table) { k.table = t }

// Check is Ring.Check for a database with this keyring.
func (k *Keyring) Check(ctx context.Context, known string) (note string, err error) {
	ring, err := k.For(encryption.With(ctx, ""))
	if err != nil {
		return "", err
	}
	if k.handlers == nil && known != "" && !ring.has(KeyOf(known)) {
		if key, err := dataKey(ctx, k.table, KeyOf(known)); err != nil || key != nil {
			return "", errors.Join(err, errHandlers)
		}
	}
	if k.handlers != nil && k.fixed.has(KeyOf(known)) { // until now the server encrypted by itself
		return ring.note(), nil
	}
	if k.handlers != nil && known != "" && !ring.has(KeyOf(known)) { // a data key of a server that started at the same moment
		raw, _ := hex.DecodeString(KeyOf(known)) // empty is no key
		if err := k.Fetch(ctx, UnknownKey(raw)); err != nil && !errors.Is(err, ErrUnknownKey) {
			return "", err
		}
	}
	note, err = ring.Check(known)
	if err != nil || k.handlers != nil {
		return note, err
	}
	return note, olderKeys(ctx, k.table, func(id string) error {
		if ring.has(id) {
			return nil
		}
		return fmt.Errorf("values of the database may still be encrypted with key %s, because understudy encrypt --rotate did not end since LANGGRAPH_AES_KEY was changed to %s: "+
			"set it to the new key, a comma and the one from before, and run understudy encrypt --rotate", id, ring.ID())
	})
}

// Readable returns an UnknownKey if a database is encrypted, by what it says now, with a key that is not there. Handlers get all keys.
func (k *Keyring) Readable(note string) error {
	raw, err := hex.DecodeString(KeyOf(note))
	if err != nil || len(raw) == 0 || k.Asks() || usable(string(raw)) {
		return nil
	}
	return UnknownKey(raw)
}

// Leave notes that a database may have values with the key of a note that is about to be replaced, until all are encrypted anew (OlderKeys).
func (k *Keyring) Leave(ctx context.Context, known string) error {
	id := KeyOf(known)
	if id == "" || k.handlers != nil {
		return nil
	}
	return k.table.Put(ctx, map[string]string{OlderKeys + id: "1"}, true)
}

// Left returns the rows that Leave has made, without one of the key that encrypts now. Ask before all values are encrypted anew, and delete them afterwards:
// another server may leave further keys meanwhile.
func (k *Keyring) Left(ctx context.Context) (rows []string, err error) {
	return rows, olderKeys(ctx, k.table, func(id string) error {
		if id != k.ID() {
			rows = append(rows, OlderKeys+id)
		}
		return nil
	})
}

// Encrypts reports whether there is anything that encrypts.
func (k *Keyring) Encrypts() bool { return k != nil && (k.fixed != nil || k.handlers != nil) }

// ID returns the ID of the key that encrypts what has no context, for people.
func (k *Keyring) ID() string {
	ring, err := k.For(context.Background())
	if err != nil {
		return ""
	}
	return ring.ID()
}

// ByHandlers stands for all data keys of handlers among the IDs of keys.
const ByHandlers = "handlers"

// Reads returns the IDs of the keys that decrypt; nil: none does.
func (k *Keyring) Reads() (ids []string) {
	if k == nil {
		return nil
	}
	if k.fixed != nil {
		for id := range k.fixed.all {
			ids = append(ids, hex.EncodeToString([]byte(id)))
		}
		slices.Sort(ids)
	}
	if k.handlers != nil {
		ids = append(ids, ByHandlers)
	}
	return ids
}

// Writes returns the ID of the key that encrypts, or ByHandlers; "": none does.
func (k *Keyring) Writes() string {
	if k.Asks() {
		return ByHandlers
	}
	return k.ID()
}

// For returns the ring that encrypts in the encryption.Context of ctx; nil does not encrypt. It asks the handlers for a new data key if there is none. Call it
// before a transaction begins.
func (k *Keyring) For(ctx context.Context) (*Ring, error) {
	if k == nil || k.handlers == nil {
		if k == nil {
			return nil, nil
		}
		return k.fixed, nil
	}
	c := encryption.Of(ctx)
	if r, ok := k.rings.Get(c); ok {
		return r, nil
	}
	made, err := k.once(ctx, "context "+string(c), func(ctx context.Context) (any, error) { return k.ring(ctx, c) })
	if err != nil {
		return nil, err
	}
	return made.(*Ring), nil
}

// once calls fn once for all who wait for the same.
func (k *Keyring) once(ctx context.Context, name string, fn func(context.Context) (any, error)) (any, error) {
	// What others wait for too does not end with the first of them. Handlers have deadlines of their own.
	result := k.flight.DoChan(name, func() (any, error) { return fn(context.WithoutCancel(ctx)) })
	select {
	case r := <-result:
		return r.Val, r.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ring finds the data key of a context, here or in the database, or makes it.
func (k *Keyring) ring(ctx context.Context, c encryption.Context) (*Ring, error) {
	id, contexts := k.newestOf(c)
	if id == "" || !usable(id) { // of another server, or refused before
		list, err := dataKeys(ctx, k.table, rowsOf(c))
		if err != nil {
			return nil, err
		}
		if err := k.unwrap(ctx, list); err != nil {
			return nil, err
		}
		if id, _ = k.newestOf(c); id == "" && len(list) > 0 {
			return nil, fault.New(fault.Unavailable, "The handlers of encryption.path do not decrypt the data key of this encryption context")
		}
	}
	if id == "" {
		if contexts >= maxContexts {
			return nil, fault.Newf(fault.Unprocessable, "There are %d encryption contexts, more are not allowed", contexts)
		}
		var err error
		if id, err = k.create(ctx, c); err != nil {
			return nil, err
		}
	}
	r, err := ringOf(id, k.has)
	if err != nil {
		return nil, err
	}
	k.rings.Put(c, r, 1)
	return r, nil
}

func (k *Keyring) newestOf(c encryption.Context) (id string, contexts int) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.newest[c], len(k.newest)
}

// create makes a data key. Before it is used, handlers have decrypted it once.
func (k *Keyring) create(ctx context.Context, c encryption.Context) (id string, err error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	wrapped, err := k.handlers.Wrap(ctx, c, key)
	if err != nil {
		return "", err
	}
	if bytes.Contains(wrapped, key) || bytes.Contains(wrapped, []byte(hex.EncodeToString(key))) {
		return "", fault.Wrap(fault.Internal, "encryption failed", errors.New("encrypt.blob of encryption.path returned its input; nothing is written"))
	}
	if len(wrapped) > maxWrapped {
		return "", fault.Wrap(fault.Internal, "encryption failed", errTooLong)
	}
	w := encryption.Wrapped{Context: c, Key: wrapped}
	back, err := k.handlers.Unwrap(ctx, []encryption.Wrapped{w})
	switch {
	case err != nil:
		return "", err
	case len(back) != 1:
		return "", fault.New(fault.Internal, "encryption failed")
	case back[0].Err != nil:
		return "", back[0].Err
	case !bytes.Equal(back[0].Key, key):
		return "", fault.Wrap(fault.Internal, "encryption failed", errors.New("decrypt of encryption.path did not return what encrypt got; nothing is written"))
	}
	raw := idOf(key)
	d := DataKey{ID: hex.EncodeToString([]byte(raw)), Wrapped: w}
	if err := putDataKey(ctx, k.table, d); err != nil {
		return "", fmt.Errorf("store a data key: %w", err)
	}
	k.log.InfoContext(ctx, "new data key", "key", d.ID, "context", string(c.Object()))
	k.keep(raw, c, key)
	return raw, nil
}

// keep makes a data key usable.
func (k *Keyring) keep(raw string, c encryption.Context, key []byte) {
	masters.Store(raw, bytes.Clone(key))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.newest[c], k.ids[raw] = raw, true
	delete(k.refused, raw)
}

// unwrap decrypts data keys. One that handlers refuse is reported, and stays unusable: the content of other contexts is not affected.
func (k *Keyring) unwrap(ctx context.Context, list []DataKey) error {
	list = slices.DeleteFunc(slices.Clone(list), func(d DataKey) bool {
		raw, err := hex.DecodeString(d.ID)
		return err == nil && k.has(string(raw)) && usable(string(raw))
	})
	if len(list) == 0 {
		return nil
	}
	wrapped := make([]encryption.Wrapped, len(list))
	for i, d := range list {
		wrapped[i] = d.Wrapped
	}
	keys, err := k.handlers.Unwrap(ctx, wrapped)
	if err != nil {
		return err
	}
	if len(keys) != len(list) {
		return fault.New(fault.Internal, "decryption failed")
	}
	for i, u := range keys {
		d := list[i]
		raw, err := hex.DecodeString(d.ID)
		if err == nil {
			err = u.Err
		}
		if err == nil && idOf(u.Key) != string(raw) {
			err = fault.Wrap(fault.Internal, "decryption failed", errors.New("decrypt of encryption.path did not return what encrypt got"))
		}
		if err != nil {
			k.mu.Lock()
			k.refused[string(raw)] = time.Now()
			delete(k.ids, string(raw))
			k.mu.Unlock()
			Forget(d.ID)
			if d.Context == "" {
				return fmt.Errorf("data key %s: %w", d.ID, err)
			}
			k.log.ErrorContext(ctx, "the handlers of encryption.path do not decrypt a data key; what it encrypts cannot be read", "key", d.ID, "context", string(d.Context), "error", err)
			continue
		}
		k.keep(string(raw), d.Context, u.Key)
		if u.Replacement != nil {
			d.Key = u.Replacement
			if err := k.replace(ctx, d, u.Key); err != nil {
				k.log.WarnContext(ctx, "the replacement of a data key is not stored; the one from before stays", "key", d.ID, "error", err)
			}
		}
	}
	return nil
}

// replace stores another form of a data key, after handlers have decrypted it once.
func (k *Keyring) replace(ctx context.Context, d DataKey, key []byte) error {
	if len(d.Key) > maxWrapped {
		return errTooLong
	}
	back, err := k.handlers.Unwrap(ctx, []encryption.Wrapped{d.Wrapped})
	if err != nil {
		return err
	}
	if len(back) != 1 || back[0].Err != nil || !bytes.Equal(back[0].Key, key) {
		return errors.New("it does not decrypt to the same key")
	}
	return putDataKey(ctx, k.table, d)
}

// Fetch makes the data key with an ID usable, which another server made. The error is a fault.
func (k *Keyring) Fetch(ctx context.Context, id UnknownKey) error {
	if k == nil || k.handlers == nil {
		return id
	}
	raw := string(id)
	k.mu.RLock()
	at, refused := k.refused[raw]
	k.mu.RUnlock()
	if refused && time.Since(at) < refusedFor {
		return id
	}
	_, err := k.once(ctx, "key "+raw, func(ctx context.Context) (any, error) {
		d, err := dataKey(ctx, k.table, hex.EncodeToString([]byte(raw)))
		if err != nil {
			return nil, err
		}
		if d == nil { // it is no data key
			k.mu.Lock()
			k.refused[raw] = time.Now()
			k.mu.Unlock()
			return nil, id
		}
		err = k.unwrap(ctx, []DataKey{*d})
		if err == nil && !usable(raw) {
			err = id
		}
		return nil, err
	})
	return err
}

// Open is the function Open, and asks the handlers for a data key that is not known yet. It is for reads outside of transactions that write. It panics with Failure.
func (k *Keyring) Open(ctx context.Context, b []byte, open func([]byte) []byte) (out []byte) {
	id := UnknownKey("")
	func() {
		var err error
		defer func() {
			if err != nil && !errors.As(err, &id) {
				panic(Failure{err})
			}
		}()
		defer Recovered(&err)
		out = open(b) // which changes nothing if the key is unknown
	}()
	if id == "" {
		return out
	}
	if err := k.Fetch(ctx, id); err != nil {
		panic(Failure{err})
	}
	return open(b)
}

// Asks reports whether decrypting a value may need a question to handlers.
func (k *Keyring) Asks() bool { return k != nil && k.handlers != nil }

func (k *Keyring) has(raw string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.ids[raw]
}

// Hidden reports names of metadata that are not in the index of threads; nil: all are in it.
func (k *Keyring) Hidden() contain.Hidden {
	if k == nil || k.handlers == nil && len(k.unindexed) == 0 {
		return nil
	}
	return k.hides
}

func (k *Keyring) hides(name string) bool {
	if slices.Contains(k.unindexed, name) {
		return true
	}
	readable, decided := k.decided(name)
	return !decided || !readable
}

// Undecided is the error of a transaction that indexes names of which is not known whether they are readable.
type Undecided []string

func (u Undecided) Error() string {
	return fmt.Sprintf("names of metadata that handlers have not seen: %q", []string(u))
}

// Index returns the terms that are in the index of threads. The error is Undecided.
func (k *Keyring) Index(terms []contain.Term) ([]contain.Term, error) {
	if k.Asks() {
		var names Undecided
		for _, term := range terms {
			if _, decided := k.decided(term.Key); !decided && !slices.Contains(k.unindexed, term.Key) {
				names = append(names, term.Key)
			}
		}
		if names != nil {
			return nil, names
		}
	}
	return contain.Except(terms, k.Hidden()), nil
}

func (k *Keyring) decided(name string) (readable, decided bool) {
	if k.handlers == nil || name == "graph_id" || name == "assistant_id" {
		return true, true
	}
	if len(name) > maxName || strings.Contains(name, "\x00") {
		return false, true
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	readable, decided = k.names[name]
	return readable, decided || len(k.names) >= maxNames
}

// Learn asks the handlers about the names that they have not seen.
func (k *Keyring) Learn(ctx context.Context, list []string) error {
	var names Undecided
	for _, name := range list {
		if _, decided := k.decided(name); !decided {
			names = append(names, name)
		}
	}
	if names == nil {
		return nil
	}
	return k.decide(ctx, names)
}

// decide asks the handlers which names are readable. What was decided first stays.
func (k *Keyring) decide(ctx context.Context, list Undecided) error {
	answers, err := k.handlers.Readable(ctx, encryption.Of(ctx), list)
	if err != nil {
		return err
	}
	if len(answers) != len(list) {
		return fault.New(fault.Internal, "encryption failed")
	}
	decided := map[string]bool{}
	for i, name := range list {
		decided[name] = answers[i]
	}
	if err := putNames(ctx, k.table, decided); err != nil {
		return err
	}
	all, err := names(ctx, k.table) // another server may have been first
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.names = all
	return nil
}

// Again makes what a transaction failed for, and reports whether it can be repeated: a data key of another server, or names that handlers have not seen. The
// error is the reason why not.
func (k *Keyring) Again(ctx context.Context, failure error) (bool, error) {
	if failure == nil || !k.Asks() {
		return false, failure
	}
	var names Undecided
	if errors.As(failure, &names) {
		err := k.decide(ctx, names)
		return err == nil, err
	}
	var id UnknownKey
	if errors.As(failure, &id) {
		err := k.Fetch(ctx, id)
		return err == nil, err
	}
	return false, failure
}

// Close ends the handlers.
func (k *Keyring) Close() error {
	if k == nil || k.handlers == nil {
		return nil
	}
	return k.handlers.Close()
}
