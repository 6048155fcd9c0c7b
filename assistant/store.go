package assistant

import (
	"context"

	"understudy/id"
)

// Store is the part of the storage that assistants use. Reads see committed rows.
type Store interface {
	// Write runs fn in a transaction of its own. An error from fn rolls it back. It returns after the commit is durable.
	Write(ctx context.Context, fn func(Tx) error) error
	// Assistant returns the current version; fault.NotFound when there is none.
	Assistant(ctx context.Context, a id.Assistant) (*Assistant, error)
	Assistants(ctx context.Context, q Query) ([]*Assistant, error)
	CountAssistants(ctx context.Context, q Query) (int, error)
	// Versions returns all versions, highest first; metadata filters by containment (nil: all).
	Versions(ctx context.Context, a id.Assistant, metadata []byte, limit, offset int) ([]*Assistant, error)
}

// Tx is a transaction. Missing rows are fault.NotFound.
type Tx interface {
	Assistant(a id.Assistant) (*Assistant, error)
	// InsertAssistant adds the row and its first version; fault.Conflict when the id exists.
	InsertAssistant(a *Assistant) error
	// PutAssistant replaces the current row; with newVersion it is also stored as a version.
	PutAssistant(a *Assistant, newVersion bool) error
	// Version returns one version; fault.NotFound when there is none. LastVersion is the highest number.
	Version(a id.Assistant, version int) (*Assistant, error)
	LastVersion(a id.Assistant) (int, error)
	DeleteAssistant(a id.Assistant) error
	// ThreadsOf returns ids of threads whose metadata carries the assistant's id.
	ThreadsOf(a id.Assistant) ([]id.Thread, error)
}

// Threads deletes the threads of an assistant.
type Threads interface {
	// Remove deletes threads with all their data, and returns those that existed.
	Remove(ctx context.Context, ids []id.Thread) ([]id.Thread, error)
}
