// Package store is the long-term memory shared by graphs and clients: JSON items under hierarchical namespaces.
package store

import (
	"context"
	"encoding/json"
	"time"

	"understudy/internal/sweep"
)

// Item is one entry.
type Item struct {
	Namespace []string
	Key       string
	Value     json.RawMessage // object
	CreatedAt time.Time
	UpdatedAt time.Time
	TTL       time.Duration // 0: does not expire; but see Service.Put
	ExpiresAt time.Time     // zero: never
}

// Search selects items below a namespace. The rows are newest update first, ties by namespace and key.
type Search struct {
	Prefix []string
	Filter json.RawMessage // {"field": value or {"$op": value}}; nil: all
	Limit  int
	Offset int
	// Bytes bounds what is loaded: from the item on with which values have more, they are left out (Item.Value is nil). Service.Load loads them. 0: no bound.
	Bytes int
}

// Namespaces selects namespaces.
type Namespaces struct {
	Prefix, Suffix []string // "*" stands for any one label
	MaxDepth       int      // longer ones are cut to it and listed once; 0: whole
	Limit, Offset  int
}

// Backend is what the store needs of the storage. Expired items are never returned.
type Backend interface {
	// Item returns an item, nil when there is none.
	Item(ctx context.Context, namespace []string, key string) (*Item, error)
	// Items returns a page.
	Items(ctx context.Context, q Search) ([]*Item, error)
	ListNamespaces(ctx context.Context, q Namespaces) ([][]string, error)
	// Apply puts and deletes in one transaction, in order. CreatedAt of an item that exists stays. A nil Value deletes.
	Apply(ctx context.Context, items []*Item) error
	// Touch postpones the expiry of items that have a TTL, and still the one that they had when they were read.
	Touch(ctx context.Context, items []*Item) error
	// Sweep deletes items that expired before now, at most limit of them; the number deleted.
	Sweep(ctx context.Context, now time.Time, limit int) (int, error)
	sweep.Turns
}
