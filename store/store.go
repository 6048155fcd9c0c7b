// Package store is the long-term memory shared by graphs and clients: JSON items under hierarchical namespaces.
package store

import (
	"context"
	"encoding/json"
	"time"

	"understudy/graph"
	"understudy/internal/sweep"
)

// Item is one entry, as graphs have it too.
type Item = graph.StoreItem

// Search selects items below a namespace. The rows are newest update first, ties by namespace and key.
type Search struct {
	Prefix []string
	Filter json.RawMessage // {"field": value or {"$op": value}}; nil: all
	Limit  int
	Offset int
	// Bytes limits what is loaded: once the values exceed it, further values are left out (Item.Value is nil). Service.Load loads them. 0: no limit.
	Bytes int
	// Query ranks the items by the similarity of their texts, if the store has an index. "" does not. Items without an embedding are left out.
	Query string
	// Near is the query for a Backend; Service.Search makes it.
	Near *Near
}

// Near ranks items by similarity: best first, ties in the usual order.
type Near struct {
	Model  string
	Vector []float32 // of length one
}

// Namespaces selects namespaces.
type Namespaces struct {
	Prefix, Suffix []string // "*" matches any single label
	MaxDepth       int      // longer ones are truncated and listed once; 0: no limit
	Limit, Offset  int
}

// Backend is the part of the storage that the store uses. Expired items are never returned.
type Backend interface {
	// Item returns an item, nil when there is none.
	Item(ctx context.Context, namespace []string, key string) (*Item, error)
	// Items returns a page.
	Items(ctx context.Context, q Search) ([]*Item, error)
	ListNamespaces(ctx context.Context, q Namespaces) ([][]string, error)
	// Apply puts and deletes in one transaction, in order. An existing item keeps its CreatedAt. A nil Value deletes.
	Apply(ctx context.Context, items []*Item) error
	// Swap is Apply for an item that has not changed since it was read (nil: there was none). done is false when it has: then nothing is written. The UpdatedAt of
	// what is written is behind that of what was read.
	Swap(ctx context.Context, item, was *Item) (done bool, err error)
	// Touch postpones the expiry of items that have a TTL, if their expiry has not changed since they were read.
	Touch(ctx context.Context, items []*Item) error
	// UseVectors prepares searches by vectors of a model, and must precede them. Vectors of other models are ignored.
	UseVectors(ctx context.Context, model string, dims int) error
	// IndexVectors makes the searches fast, which may take minutes; they work meanwhile. It may be called again.
	IndexVectors(ctx context.Context) error
	// Unembedded returns items whose embedding does not follow a configuration, after another such item (nil: the first ones), up to the
	// one with which the values have more than so many bytes. Their Embedding has their Configuration.
	Unembedded(ctx context.Context, configuration string, after *Item, limit, bytes int) ([]*Item, error)
	// Embed stores the embeddings of items whose value and index have not changed since they were read.
	Embed(ctx context.Context, items []*Item) error
	// Sweep deletes at most limit items that expired before now, and returns their number.
	Sweep(ctx context.Context, now time.Time, limit int) (int, error)
	sweep.Turns
}
