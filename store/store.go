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
	// Touch postpones the expiry of items that have a TTL, if their expiry has not changed since they were read.
	Touch(ctx context.Context, items []*Item) error
	// Sweep deletes at most limit items that expired before now, and returns their number.
	Sweep(ctx context.Context, now time.Time, limit int) (int, error)
	sweep.Turns
}
