// Package audit records who was refused, whose keys changed, and which threads got another owner: an append-only list next to the data, for those who run a server.
//
// Changes of keys and of owners are written in the transaction that makes them. Refusals are collected in memory, equal ones as one entry with a count, and
// written once a second at most, so that a request never waits for the list and a flood of them stays small. Entries hold no credentials, and
// no text that clients or handlers wrote except names: identities, IDs and routes.
package audit

import (
	"context"
	"time"
)

// Events of entries.
const (
	KeyCreated   = "key.created"
	KeyExpires   = "key.expires" // its end was set, as by a rotation
	KeyRevoked   = "key.revoked"
	ThreadOwner  = "thread.owner" // a thread got another owner
	SignInFailed = "sign-in.failed"
	Denied       = "access.denied" // a policy refused the action, or its resource belongs to another identity
)

// Events are all of them.
var Events = []string{KeyCreated, KeyExpires, KeyRevoked, ThreadOwner, SignInFailed, Denied}

// Entry is what happened, once or several times.
type Entry struct {
	// ID is its position: later entries have higher ones. The store assigns it.
	ID    int64
	At    time.Time // of the first time
	Event string
	// Identity is who acted; "" when that is not known, as of a sign-in that failed.
	Identity string
	// Source is the address of the peer, without its port, or CommandLine.
	Source string
	// Resource is what it was about: a route, an action with the ID of its resource, a thread, or a key.
	Resource string
	// Outcome is "done", or the status that the client got.
	Outcome string
	// Detail says more in words of this server; "" nothing.
	Detail string
	// Count is how often it happened in this second; 1 or more.
	Count int
}

// CommandLine is the Source of commands.
const CommandLine = "command line"

// Query selects entries: those whose fields equal the ones that are not "".
type Query struct {
	Event, Identity, Source string
	Since                   time.Time // zero: any
	After                   int64     // those with a higher ID: the oldest first. 0: the newest entries
	Limit                   int       // required
}

// Store keeps entries.
type Store interface {
	// AppendAudit adds entries in one transaction. It sets no ID in them.
	AppendAudit(ctx context.Context, entries []Entry) error
	// Audit returns the entries of a query in ascending order of their IDs. Those with a higher ID than all that it returned are found later.
	Audit(ctx context.Context, q Query) ([]Entry, error)
	// TrimAudit deletes the oldest entries: those before a time, and of refusals all but the newest keep. It returns how many, at most limit.
	TrimAudit(ctx context.Context, before time.Time, keep, limit int) (int, error)
}
