// Package idempotency is what the header Idempotency-Key means: of requests with the same key one creates something, and the others get what it created.
package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"understudy/internal/fault"
)

// Header is the request header.
const Header = "Idempotency-Key"

// Repeated is the response header of an answer with what an earlier request created.
const Repeated = "Idempotent-Replayed"

// Lifetime is how long a key counts after the request that stored it.
const Lifetime = 24 * time.Hour

// maxKey bounds a key, in bytes.
const maxKey = 255

// Key is the key of a request. A service sets Repeated.
type Key struct {
	ID       string // identifies the key and its owner
	Digest   []byte // of what is requested
	Repeated bool   // an earlier request has created what is returned
}

// Record is what a database holds of a key.
type Record struct {
	ID     string
	Digest []byte
	At     time.Time
	Thread string
	Runs   []string // empty: the request created a thread
}

var (
	errKey = fault.Newf(fault.Unprocessable, "%s must have 1 to %d printable ASCII characters", Header, maxKey)
	// ErrReused is the error for a key that an earlier request had with another body.
	ErrReused = fault.Newf(fault.Unprocessable, "%s was used for a different request: use a new key for each request, and the same key with the same body to repeat one", Header)
	// ErrGone is the error for a request whose run or thread is deleted: it is not executed again.
	ErrGone = fault.Newf(fault.Conflict, "The request with this %s was executed, and nothing of it is kept. Use a new key to execute it again", Header)
	// ErrRace is the error of a transaction whose key another one has stored meanwhile: it is repeated.
	ErrRace = fault.Newf(fault.Conflict, "A request with this %s is being executed. Try again", Header)
)

// New returns the key with the given text. owner is who sends the request, "" when that is not known; parts are what is requested. The error is a fault.
func New(text, owner string, parts ...[]byte) (*Key, error) {
	if err := Valid(text); err != nil {
		return nil, err
	}
	return &Key{ID: hex.EncodeToString(digest([]byte(owner), []byte(text))), Digest: digest(parts...)}, nil
}

// Valid returns the error of New for a text.
func Valid(text string) error {
	if text == "" || len(text) > maxKey {
		return errKey
	}
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return errKey
		}
	}
	return nil
}

// digest returns a digest of parts that differs when their borders do.
func digest(parts ...[]byte) []byte {
	all := sha256.New()
	for _, p := range parts {
		sum := sha256.Sum256(p)
		all.Write(sum[:])
	}
	return all.Sum(nil)
}

// Check returns ErrReused when the record is that of another request.
func (k *Key) Check(r *Record) error {
	if !bytes.Equal(k.Digest, r.Digest) {
		return ErrReused
	}
	return nil
}

// Expired is the time before which records do not count any more.
func Expired(now time.Time) time.Time { return now.Add(-Lifetime) }

// Tx is what a transaction needs for keys.
type Tx interface {
	// IdempotencyRecord returns the record of a key that was stored after expired; nil when there is none.
	IdempotencyRecord(id string, expired time.Time) (*Record, error)
	// InsertIdempotencyRecord stores a record, in place of one from before expired. ErrRace: there is another one.
	InsertIdempotencyRecord(r *Record, expired time.Time) error
}
