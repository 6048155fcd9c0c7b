package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"understudy/access"
	"understudy/internal/cache"
	"understudy/internal/jsonobj"
	"understudy/internal/loop"
)

// Key is an API key without its secret.
type Key struct {
	ID       string // public: it is a part of the key, and names it in lists and logs
	Name     string // what it is for
	Identity string // as whom it acts
	Scopes   []string
	Digest   string // SHA-256 of the secret, in hexadecimal

	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
	RevokedAt time.Time // zero: it was not
	UsedAt    time.Time // about; zero: never
}

// Valid reports whether a key is accepted at a time.
func (k *Key) Valid(now time.Time) bool {
	return k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || now.Before(k.ExpiresAt))
}

// KeyStore keeps keys.
type KeyStore interface {
	InsertKey(ctx context.Context, k *Key) error
	// KeysOf returns those of the keys that exist, in any order.
	KeysOf(ctx context.Context, ids []string) ([]*Key, error)
	// KeysOfIdentity returns the keys of an identity, in any order, also those that are not valid any more.
	KeysOfIdentity(ctx context.Context, identity string) ([]*Key, error)
	// Keys returns all keys, the oldest first, also those that are not valid any more.
	Keys(ctx context.Context) ([]*Key, error)
	// ExpireKey lets a key end at a time unless it ends before, RevokeKey now. The error for an unknown one is fault.NotFound.
	ExpireKey(ctx context.Context, id string, at time.Time) error
	RevokeKey(ctx context.Context, id string, at time.Time) error
	// UseKeys notes, in one transaction, when keys were used. Later times that are there already stay, and keys that are gone are left out.
	UseKeys(ctx context.Context, used map[string]time.Time) error
}

// prefix begins every key, so that people and scanners of secrets recognize one.
const prefix = "us_"

const (
	idBytes     = 8
	secretBytes = 32
	maxText     = 128 // of a key
)

// keyLength is that of the text of a key: prefix, ID, "_", secret and checksum.
var keyLength = len(prefix) + 2*idBytes + 1 + SecretLength + 2*crc32.Size

// New makes a key that is not stored yet, and its text, which nothing can be made from later.
func New(name, identity string, scopes []string, now, expires time.Time) (k *Key, text string) {
	random := make([]byte, idBytes+secretBytes)
	_, _ = rand.Read(random) // it does not fail
	secret := base64.RawURLEncoding.EncodeToString(random[idBytes:])
	sum := digest(secret)
	k = &Key{ID: hex.EncodeToString(random[:idBytes]), Name: name, Identity: identity, Scopes: scopes, Digest: string(sum[:]), CreatedAt: now, ExpiresAt: expires}
	text = prefix + k.ID + "_" + secret
	check := checksum(text)
	return k, text + string(check[:])
}

// IDOf returns the ID of a key that a person names: by its ID, or by its whole text.
func IDOf(name string) string {
	if text, ok := strings.CutPrefix(name, prefix); ok && len(text) > 2*idBytes && text[2*idBytes] == '_' {
		return text[:2*idBytes]
	}
	return name
}

// digest is Key.Digest of a secret.
func digest(secret string) (out [2 * sha256.Size]byte) {
	sum := digestOf(secret)
	hex.Encode(out[:], sum[:])
	return out
}

// digestOf is the SHA-256 of a text of at most maxText bytes.
func digestOf(text string) [sha256.Size]byte {
	var b [maxText]byte // a conversion would allocate
	return sha256.Sum256(b[:copy(b[:], text)])
}

// checksum makes a mistyped or made-up key known without a question to the database.
func checksum(text string) (out [2 * crc32.Size]byte) {
	crc := ^uint32(0)
	for i := range len(text) { // as crc32.ChecksumIEEE, which would copy the text to the heap
		crc = crc32.IEEETable[byte(crc)^text[i]] ^ crc>>8
	}
	var sum [crc32.Size]byte
	binary.BigEndian.PutUint32(sum[:], ^crc)
	hex.Encode(out[:], sum[:])
	return out
}

// is reports whether a secret is that of a key.
func (k *Key) is(secret string) bool {
	have := digest(secret)
	return subtle.ConstantTimeCompare([]byte(k.Digest), have[:]) == 1
}

// parse splits the text of a key.
func parse(text string) (id, secret string, ok bool) {
	const tail = 2 * crc32.Size
	if len(text) < len(prefix)+tail || len(text) > maxText || !strings.HasPrefix(text, prefix) {
		return "", "", false
	}
	body, sum := text[:len(text)-tail], text[len(text)-tail:]
	id, secret, ok = strings.Cut(body[len(prefix):], "_")
	want := checksum(body)
	return id, secret, ok && sum == string(want[:]) && len(id) == 2*idBytes && len(secret) == SecretLength
}

// Fresh is how long a key that was read is taken as valid: a revocation takes effect on every server within this time.
const Fresh = 5 * time.Second

const (
	renewed   = 4 * time.Second // after it a key is read again, by one request: others use it until Fresh
	maxCached = 20_000
	usedEvery = 10 * time.Minute // how exact Key.UsedAt is
	useFlush  = time.Second      // between writes of it
	lastUses  = 5 * time.Second  // for the last write when the server stops
)

// Keys authenticates by API keys. Create it with NewKeys, and let Run note their use. It is safe for concurrent use.
type Keys struct {
	store   KeyStore
	now     func() time.Time
	log     *slog.Logger
	lookups lookups[Key]

	mu     sync.Mutex
	cached *cache.Cache[string, *cachedKey]
	uses   map[string]time.Time // not written yet, by ID; at most maxCached

	noted chan struct{} // wakes Run
}

type cachedKey struct {
	*Key
	actor  *access.Actor
	text   atomic.Pointer[[sha256.Size]byte] // SHA-256 of the text of the key, when it was accepted
	at     time.Time                         // when it was read
	asking bool                              // a request reads it again; guarded by Keys.mu
	used   atomic.Int64                      // when its use was noted, in nanoseconds; without Keys.mu, as every request reads it
}

// NewKeys authenticates by the keys of a store. log may be nil.
func NewKeys(store KeyStore, now func() time.Time, log *slog.Logger) *Keys {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Keys{store: store, now: now, log: log, cached: cache.New[string, *cachedKey](maxCached), uses: map[string]time.Time{}, noted: make(chan struct{}, 1)}
	s.lookups.read, s.lookups.idOf, s.lookups.problem = store.KeysOf, func(k *Key) string { return k.ID }, "API keys cannot be checked now"
	return s
}

var (
	errKey     = refused("Invalid API key")
	errExpired = refused("The API key has expired or was revoked")
)

// Authenticate returns who acts with a key. The error is an *access.Refusal, or a fault when the database does not answer.
func (s *Keys) Authenticate(ctx context.Context, text string) (*access.Actor, error) {
	text, now := strings.TrimSpace(text), s.now()
	if k := s.accepted(text, now); k != nil {
		s.used(k, now)
		return k.actor, nil
	}
	id, secret, ok := parse(text)
	if !ok {
		return nil, errKey
	}
	k, err := s.key(ctx, id)
	if err != nil {
		return nil, err
	}
	if k == nil {
		return nil, errKey
	}
	if !k.is(secret) {
		return nil, about(errKey, "wrong secret of key "+id)
	}
	if now = s.now(); !k.Valid(now) {
		return nil, about(errExpired, "key "+id+" has expired or was revoked")
	}
	sum := digestOf(text)
	k.text.Store(&sum)
	s.used(k, now)
	return k.actor, nil
}

// holds returns an *access.Refusal unless the valid keys of an identity have the scopes that an actor has.
func (s *Keys) holds(ctx context.Context, actor *access.Actor) error {
	keys, err := s.store.KeysOfIdentity(ctx, actor.Identity)
	if err != nil {
		return err
	}
	now := s.now()
	keys = slices.DeleteFunc(keys, func(k *Key) bool { return !k.Valid(now) })
	if len(keys) == 0 {
		return locked("no valid API key of " + actor.Identity + ": create one for this identity, or delete its crons")
	}
	for _, scope := range actor.Permissions {
		if !slices.ContainsFunc(keys, func(k *Key) bool { return implies(k.Scopes, scope) }) {
			return locked("no valid API key of " + actor.Identity + " has the scope " + scope + ": create one for this identity, or delete its crons")
		}
	}
	return nil
}

func locked(text string) *access.Refusal {
	return &access.Refusal{Status: http.StatusForbidden, Detail: jsonobj.Quote(text)}
}

// accepted returns the key of a text that was accepted a short time ago, as of most requests; nil for any other. It does the same as parse, key and is, with one digest.
func (s *Keys) accepted(text string, now time.Time) *cachedKey {
	if len(text) != keyLength {
		return nil
	}
	k, _ := s.cached.Get(text[len(prefix) : len(prefix)+2*idBytes])
	if k == nil || now.Sub(k.at) >= renewed || !k.Valid(now) {
		return nil
	}
	was, have := k.text.Load(), digestOf(text)
	if was == nil || subtle.ConstantTimeCompare(was[:], have[:]) != 1 {
		return nil
	}
	return k
}

// known implements checker.
func (s *Keys) known(text string) bool {
	id, secret, ok := parse(strings.TrimSpace(text))
	if !ok {
		return false
	}
	k, _ := s.cached.Get(id)
	return k != nil && k.Valid(s.now()) && k.is(secret)
}

// about is a refusal with a text for the audit log.
func about(refusal *access.Refusal, text string) *access.Refusal {
	out := *refusal
	out.Audit = text
	return &out
}

// key returns a key of the cache or the store; nil when there is none.
func (s *Keys) key(ctx context.Context, id string) (*cachedKey, error) {
	now := s.now()
	have, _ := s.cached.Get(id)
	if have != nil && now.Sub(have.at) < renewed {
		return have, nil
	}
	s.mu.Lock()
	have, _ = s.cached.Get(id)
	if have != nil && (now.Sub(have.at) < renewed || have.asking && now.Sub(have.at) < Fresh) {
		s.mu.Unlock()
		return have, nil
	}
	if have != nil {
		have.asking = true
	}
	s.mu.Unlock()
	row, err := s.lookups.find(ctx, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if have != nil {
		have.asking = false
	}
	if err != nil {
		return nil, err
	}
	if row == nil {
		s.cached.Take(id)
		return nil, nil //nolint:nilnil // there is none
	}
	k := &cachedKey{Key: row, at: now}
	if !row.UsedAt.IsZero() {
		k.used.Store(row.UsedAt.UnixNano())
	}
	if have != nil {
		k.used.Store(max(k.used.Load(), have.used.Load()))
	}
	if have != nil && have.Identity == row.Identity && slices.Equal(have.Scopes, row.Scopes) {
		k.actor = have.actor
	} else {
		k.actor = actor(row.Identity, "", row.Scopes, nil)
	}
	s.cached.Put(id, k, 1)
	return k, nil
}

// used notes the use of a key, now and then. Run writes it: no request waits for that.
func (s *Keys) used(k *cachedKey, now time.Time) {
	last := k.used.Load()
	if now.UnixNano()-last < int64(usedEvery) || !k.used.CompareAndSwap(last, now.UnixNano()) { // or another request notes it
		return
	}
	s.mu.Lock()
	if len(s.uses) < maxCached { // else the next use is noted
		s.uses[k.ID] = now
	}
	s.mu.Unlock()
	loop.Poke(s.noted)
}

// Run writes when keys were used, at most once a second, until the context ends. What was noted by then is written.
func (s *Keys) Run(ctx context.Context) error {
	err := loop.Loop{Name: "use of API keys", Log: s.log, Now: s.now}.Run(ctx, s.noted, func(ctx context.Context) (time.Time, error) {
		err := s.flush(ctx)
		loop.Sleep(ctx, useFlush) // what is noted next waits
		return time.Time{}, err
	})
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastUses)
	defer cancel()
	if err := s.flush(last); err != nil {
		s.log.WarnContext(ctx, "noting the use of API keys of the last second failed", "error", err)
	}
	return err
}

// flush writes what was noted. After an error it is still there.
func (s *Keys) flush(ctx context.Context) error {
	s.mu.Lock()
	uses := s.uses
	s.uses = map[string]time.Time{}
	s.mu.Unlock()
	if len(uses) == 0 {
		return nil
	}
	err := s.store.UseKeys(ctx, uses)
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, at := range uses {
		if _, later := s.uses[id]; !later && len(s.uses) < maxCached {
			s.uses[id] = at
		}
	}
	return err
}
