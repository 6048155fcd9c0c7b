// Package seal encrypts the content of databases: AES-256-GCM, with the key's ID in front of each value, so that values of different keys,
// and those from before there was one, are in one table.
//
// A ring encrypts with its first key and a key derived from it for this ring alone, whose nonces count: no nonce is used twice, however many
// values there are. Equal values have different ciphertexts.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tidwall/gjson"

	"understudy/internal/cache"
)

// A sealed value is the magic, the ID of its key, the salt of its ring, a counter, and the ciphertext with its tag. No JSON and no msgpack begins
// with the magic.
const (
	magic    = "\xc1unseal\x01"
	idSize   = 8
	saltSize = 16
	header   = len(magic) + idSize + saltSize + 8
	tagSize  = 16
)

// Overhead is how many bytes longer an encrypted value is.
const Overhead = int64(header + tagSize)

// Failure is what Open panics with; queries return it as their error.
type Failure struct{ error }

// Unwrap returns the error.
func (f Failure) Unwrap() error { return f.error }

// ErrUnknownKey: a value is encrypted with a key that is not there.
var ErrUnknownKey = errors.New("encrypted with a key that this server does not have; add it to LANGGRAPH_AES_KEY, behind the current one and a comma, or name the handlers of its database in encryption.path")

var (
	masters sync.Map                                     // by ID: the keys of all rings of the process
	derived = cache.New[string, cipher.AEAD](maxDerived) // by ID and salt
)

// maxDerived bounds the keys in memory: each start of a server makes one for each context.
const maxDerived = 16 << 10

// UnknownKey is the ID of a key that is not there.
type UnknownKey string

func (id UnknownKey) Error() string { return "key " + id.Hex() + ": " + ErrUnknownKey.Error() }

// Hex returns the ID as people see it.
func (id UnknownKey) Hex() string { return hex.EncodeToString([]byte(id)) }

// Unwrap returns ErrUnknownKey.
func (UnknownKey) Unwrap() error { return ErrUnknownKey }

// Forget makes the key with an ID, in hex, unusable.
func Forget(id string) {
	raw, err := hex.DecodeString(id)
	if err != nil {
		return
	}
	masters.Delete(string(raw))
	derived.DeleteFunc(func(k string) bool { return strings.HasPrefix(k, string(raw)) })
}

// usable reports whether the key with an ID is there.
func usable(id string) bool {
	_, ok := masters.Load(id)
	return ok
}

// Ring encrypts. nil does not. It is safe for concurrent use.
type Ring struct {
	id      string
	all     map[string]bool      // IDs of all its keys
	current func(id string) bool // of keys that encrypt what needs no change
	prefix  []byte               // magic, ID and salt
	aead    cipher.AEAD
	counter atomic.Uint64
}

// NewRing returns a ring for keys of 16, 24 or 32 bytes, the current one first; nil for none. All of them decrypt from now on.
func NewRing(keys [][]byte) (*Ring, error) {
	all := map[string]bool{}
	for _, key := range keys {
		if n := len(key); n != 16 && n != 24 && n != 32 {
			return nil, fmt.Errorf("an encryption key has %d bytes; it must have 16, 24 or 32", n)
		}
		masters.Store(idOf(key), bytes.Clone(key))
		all[idOf(key)] = true
	}
	if len(keys) == 0 {
		return nil, nil
	}
	first := idOf(keys[0])
	r, err := ringOf(first, func(id string) bool { return id == first })
	if err == nil {
		r.all = all
	}
	return r, err
}

// ringOf returns a ring for a key that is there. current reports which IDs of keys need no change.
func ringOf(id string, current func(id string) bool) (*Ring, error) {
	r := &Ring{id: id, current: current}
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt) // never fails
	r.prefix = append(append([]byte(magic), r.id...), salt...)
	var err error
	r.aead, err = derive(r.id, string(salt))
	return r, err
}

// has reports whether the ring has the key with an ID, in hex.
func (r *Ring) has(id string) bool {
	raw, err := hex.DecodeString(id)
	return r != nil && err == nil && (r.all[string(raw)] || r.current(string(raw)))
}

// idOf returns the ID of a key, which reveals nothing about it.
func idOf(key []byte) string {
	sum := sha256.Sum256(append([]byte("understudy key id\x00"), key...))
	return string(sum[:idSize])
}

func derive(id, salt string) (cipher.AEAD, error) {
	if a, ok := derived.Get(id + salt); ok {
		return a, nil
	}
	key, ok := masters.Load(id)
	if !ok {
		return nil, UnknownKey(id)
	}
	sub, err := hkdf.Key(sha256.New, key.([]byte), []byte(salt), "understudy content", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(sub)
	if err != nil {
		return nil, err
	}
	a, err := cipher.NewGCM(block)
	if err == nil {
		derived.Put(id+salt, a, 1)
	}
	return a, err
}

// ID returns the ID of the key that the ring encrypts with, for people; "" for nil.
func (r *Ring) ID() string {
	if r == nil {
		return ""
	}
	return hex.EncodeToString([]byte(r.id))
}

// Seal encrypts a value. nil stays nil.
func (r *Ring) Seal(b []byte) []byte {
	if r == nil || b == nil {
		return b
	}
	out := make([]byte, 0, header+len(b)+tagSize)
	out = append(out, r.prefix...)
	out = binary.BigEndian.AppendUint64(out, r.counter.Add(1))
	return r.aead.Seal(out, nonce(out), b, out[:header])
}

// Current reports whether a value is encrypted with the key that the ring encrypts with, or with another data key of the same handlers.
func (r *Ring) Current(b []byte) bool {
	return r != nil && IsSealed(b) && r.current(string(b[len(magic):len(magic)+idSize]))
}

func nonce(sealed []byte) []byte {
	n := make([]byte, 12)
	copy(n[4:], sealed[header-8:header])
	return n
}

// IsSealed reports whether a value is encrypted.
func IsSealed(b []byte) bool {
	return len(b) >= header+tagSize && string(b[:len(magic)]) == magic
}

// Try decrypts a value, and returns one that is not encrypted as it is. The result may use the memory of b.
func Try(b []byte) ([]byte, error) {
	if !IsSealed(b) {
		return b, nil
	}
	a, err := derive(string(b[len(magic):len(magic)+idSize]), string(b[len(magic)+idSize:header-8]))
	if err != nil {
		return nil, err
	}
	out, err := a.Open(b[header:header], nonce(b), b[header:], b[:header])
	if err != nil {
		return nil, fmt.Errorf("an encrypted value is damaged: %w", err)
	}
	if out == nil {
		out = []byte{}
	}
	return out, nil
}

// Open is Try for functions that return no error. It panics with Failure.
func Open(b []byte) []byte {
	out, err := Try(b)
	if err != nil {
		panic(Failure{err})
	}
	return out
}

// Recovered turns a panic of Open into an error. It is called deferred.
func Recovered(err *error) {
	switch p := recover().(type) {
	case nil:
	case Failure:
		*err = p.error
	default:
		panic(p)
	}
}

// mark begins a text in JSON that is an encrypted value.
const mark = `"understudy-sealed:`

// JSON encrypts the values of an object's members except those with the given names, and the values inside of the member deep: the database looks at the names of
// those. What is not an object stays.
func (r *Ring) JSON(object []byte, deep string, except ...string) []byte {
	in := gjson.ParseBytes(object)
	if r == nil || !in.IsObject() {
		return object
	}
	out := []byte{'{'}
	in.ForEach(func(k, v gjson.Result) bool {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(out, k.Raw...), ':')
		switch name := k.String(); {
		case name == deep && v.IsObject():
			out = append(out, r.JSON([]byte(v.Raw), "")...)
			return true
		default:
			for _, other := range except {
				if name == other {
					out = append(out, v.Raw...)
					return true
				}
			}
		}
		out = append(out, mark...)
		out = base64.StdEncoding.AppendEncode(out, r.Seal([]byte(v.Raw)))
		out = append(out, '"')
		return true
	})
	return append(out, '}')
}

// OpenJSON decrypts what JSON encrypted. It panics with Failure.
func OpenJSON(b []byte) []byte {
	if !bytes.Contains(b, []byte(mark)) {
		return b
	}
	var out []byte
	for {
		before, rest, found := bytes.Cut(b, []byte(mark))
		out = append(out, before...)
		if !found {
			return out
		}
		text, after, closed := bytes.Cut(rest, []byte{'"'})
		sealed, err := base64.StdEncoding.DecodeString(string(text))
		if !closed || err != nil || !IsSealed(sealed) { // a text of a user
			out, b = append(out, mark...), rest
			continue
		}
		out, b = append(out, Open(sealed)...), after
	}
}

// JSONCurrent reports whether all values of an object that JSON encrypts have the key of the ring.
func (r *Ring) JSONCurrent(object []byte, deep string, except ...string) bool {
	return !r.stale(object, deep, except)
}

func (r *Ring) stale(object []byte, deep string, except []string) (stale bool) {
	gjson.ParseBytes(object).ForEach(func(k, v gjson.Result) bool {
		name := k.String()
		for _, other := range except {
			if name == other {
				return true
			}
		}
		if name == deep && v.IsObject() {
			stale = r.stale([]byte(v.Raw), "", nil)
			return !stale
		}
		sealed, err := base64.StdEncoding.DecodeString(string(bytes.TrimPrefix([]byte(v.String()), []byte(mark[1:]))))
		stale = err != nil || !r.Current(sealed)
		return !stale
	})
	return stale
}

// MetaKey is the row of the table meta that says with which key a database is encrypted.
const MetaKey = "encryption"

// ErrNoKey: something needs a key, and there is none.
var ErrNoKey = errors.New("no encryption key; set LANGGRAPH_AES_KEY")

// Check compares the ring with what a database says about its key ("": it is not encrypted), and returns what it should say.
func (r *Ring) Check(known string) (string, error) {
	if known == "" && r == nil {
		return "", nil
	}
	sealed, err := base64.StdEncoding.DecodeString(known)
	if err != nil {
		return "", fmt.Errorf("the row %s of the table meta is damaged: %w", MetaKey, err)
	}
	if known != "" && r == nil {
		return "", fmt.Errorf("the database is encrypted with key %s: %w", keyOf(sealed), ErrNoKey)
	}
	if known != "" {
		if text, err := Try(sealed); err != nil || string(text) != MetaKey || !r.has(keyOf(sealed)) {
			return "", fmt.Errorf("the database is encrypted with key %s, and LANGGRAPH_AES_KEY is key %s: set it to the key from before, or add that behind a comma",
				keyOf(sealed), r.ID())
		}
		if r.Current(sealed) {
			return known, nil
		}
	}
	return r.note(), nil
}

func (r *Ring) note() string { return base64.StdEncoding.EncodeToString(r.Seal([]byte(MetaKey))) }

// KeyOf returns the ID of the key of a note that Check returned; "" if there is none.
func KeyOf(note string) string {
	sealed, err := base64.StdEncoding.DecodeString(note)
	if err != nil {
		return ""
	}
	return keyOf(sealed)
}

func keyOf(sealed []byte) string {
	if !IsSealed(sealed) {
		return ""
	}
	return hex.EncodeToString(sealed[len(magic) : len(magic)+idSize])
}

// Deep is the member of a checkpoint whose values are encrypted one by one: Postgres looks at the names.
const Deep = "channel_values"

// CheckpointMembers and MetadataMembers are not encrypted.
var (
	CheckpointMembers = []string{"v", "id", "ts", "channel_versions", "versions_seen", "updated_channels"}
	MetadataMembers   = []string{"source", "step", "parents", "thread_id", "run_id", "run_attempt", "graph_id", "assistant_id", "langgraph_step", "counters_since_delta_snapshot", "delta_writes_versioned"}
)
