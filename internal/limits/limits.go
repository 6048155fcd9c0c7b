// Package limits limits what clients may store when even linear work would delay others.
package limits

import (
	"encoding/json"

	"understudy/internal/fault"
	"understudy/internal/jsonobj"
	"understudy/internal/jsonscan"
)

// ErrReads is the error of a read for which there is no memory while others read.
var ErrReads = fault.New(fault.Unavailable, "Too much is being read at the moment, try again")

const (
	// MetadataBytes is the maximum size of the metadata of a thread, run, assistant or cron: 1 MiB. It is merged within
	// write transactions, and each of its keys is indexed for searches.
	MetadataBytes = 1 << 20
	// MetadataDepth is the maximum nesting of objects and lists in metadata.
	MetadataDepth = 200
	// NameBytes is the maximum size of the name of an assistant.
	NameBytes = 64 << 10
	// ItemNameBytes is the maximum size of the namespace and the key of an item together. They are the primary key of items, and an index of Postgres
	// takes 2,704 bytes a row.
	ItemNameBytes = 2500
)

// Metadata returns an Unprocessable fault that names the limit when metadata is larger or deeper than allowed. raw is valid JSON, or empty.
func Metadata(raw json.RawMessage) error {
	if len(raw) > MetadataBytes {
		return fault.Newf(fault.Unprocessable, "metadata has %d bytes; the limit is %d (1 MiB). Keep large values in the state or in the store", len(raw), MetadataBytes)
	}
	if jsonscan.DeeperThan(raw, MetadataDepth) {
		return fault.Newf(fault.Unprocessable, "metadata is nested more than %d levels deep, which is the limit", MetadataDepth)
	}
	return nil
}

// Name returns an Unprocessable fault that names the limit when a name is longer than allowed.
func Name(name string) error {
	if len(name) > NameBytes {
		return fault.Newf(fault.Unprocessable, "name has %d bytes; the limit is %d. Put longer texts into the description", len(name), NameBytes)
	}
	return nil
}

// ItemName returns an Unprocessable fault that names the limit when the namespace and the key of an item are longer than allowed.
func ItemName(namespace []string, key string) error {
	n := len(key) + len(namespace) // a separator for each label
	for _, label := range namespace {
		n += len(label)
	}
	if n > ItemNameBytes {
		return fault.Newf(fault.Unprocessable, "namespace and key of an item have %d bytes; the limit is %d. Put long texts into the value", n, ItemNameBytes)
	}
	return nil
}

// MergeMetadata sets the keys of over in base, and returns the fault of Metadata when the result is beyond the limits.
func MergeMetadata(base, over json.RawMessage) (json.RawMessage, error) {
	merged := jsonobj.Merge(base, over)
	return merged, Metadata(merged)
}
