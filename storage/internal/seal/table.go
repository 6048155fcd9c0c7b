package seal

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"understudy/internal/encryption"
)

// Table is the table meta of a database, in which data keys are, and which names of metadata are readable. Its methods do not use the keyring.
type Table interface {
	// Rows calls fn for the rows whose key is at least from and less than below in the order of bytes.
	Rows(ctx context.Context, from, below string, fn func(key, value string) error) error
	// Put stores rows in one transaction. Without replace those that are there already stay.
	Put(ctx context.Context, rows map[string]string, replace bool) error
}

const (
	// A row of a data key is named by a digest of its context, so that the keys of a context are found together, and by its ID.
	dataKeyRows = "data_key:"
	// A row of an ID has the name of the row of its data key.
	dataKeyIDs = "data_key_id:"
	nameRows   = "readable_name:"
	// OlderKeys begins the names of rows of keys with which values may still be encrypted, in hex.
	OlderKeys = "older_key:"
)

// olderKeys calls fn for each key with which values may still be encrypted, and returns its first error.
func olderKeys(ctx context.Context, t Table, fn func(id string) error) error {
	return t.Rows(ctx, OlderKeys, below(OlderKeys), func(key, _ string) error { return fn(strings.TrimPrefix(key, OlderKeys)) })
}

// DataKey is a data key as a database keeps it.
type DataKey struct {
	ID string // hex
	encryption.Wrapped
}

// storedKey is the value of its row.
type storedKey struct {
	Context json.RawMessage `json:"context"`
	Wrapped string          `json:"wrapped"`
}

func rowsOf(c encryption.Context) string {
	sum := sha256.Sum256([]byte(c))
	return dataKeyRows + hex.EncodeToString(sum[:16]) + ":"
}

// below is the first text behind those that begin with prefix.
func below(prefix string) string { return prefix[:len(prefix)-1] + string(prefix[len(prefix)-1]+1) }

// dataKeys returns the data keys whose rows begin with prefix.
func dataKeys(ctx context.Context, t Table, prefix string) (list []DataKey, err error) {
	err = t.Rows(ctx, prefix, below(prefix), func(key, value string) error {
		var s storedKey
		if err := json.Unmarshal([]byte(value), &s); err != nil {
			return fmt.Errorf("the row %s of the table meta is damaged: %w", key, err)
		}
		c, err := encryption.Restore(s.Context)
		if err != nil {
			return fmt.Errorf("the row %s of the table meta is damaged: %w", key, err)
		}
		wrapped, err := base64.StdEncoding.DecodeString(s.Wrapped)
		if err != nil {
			return fmt.Errorf("the row %s of the table meta is damaged: %w", key, err)
		}
		list = append(list, DataKey{ID: key[strings.LastIndexByte(key, ':')+1:], Wrapped: encryption.Wrapped{Context: c, Key: wrapped}})
		return nil
	})
	return list, err
}

// dataKey returns the data key with an ID; nil when there is none. It reads all only for one that was stored without a row of its ID.
func dataKey(ctx context.Context, t Table, id string) (*DataKey, error) {
	row := dataKeyRows
	at := dataKeyIDs + id
	if err := t.Rows(ctx, at, at+"\x01", func(_, value string) error {
		row = value
		return nil
	}); err != nil {
		return nil, err
	}
	list, err := dataKeys(ctx, t, row)
	for i := range list {
		if list[i].ID == id {
			return &list[i], nil
		}
	}
	return nil, err
}

// putDataKey stores a data key, in place of one with the same ID.
func putDataKey(ctx context.Context, t Table, d DataKey) error {
	value, err := json.Marshal(storedKey{Context: d.Context.Object(), Wrapped: base64.StdEncoding.EncodeToString(d.Key)})
	if err != nil {
		return err
	}
	row := rowsOf(d.Context) + d.ID
	return t.Put(ctx, map[string]string{row: string(value), dataKeyIDs + d.ID: row}, true)
}

// names returns which names of metadata are readable.
func names(ctx context.Context, t Table) (map[string]bool, error) {
	out := map[string]bool{}
	err := t.Rows(ctx, nameRows, below(nameRows), func(key, value string) error {
		out[strings.TrimPrefix(key, nameRows)] = value == "true"
		return nil
	})
	return out, err
}

// putNames stores the names that are not there yet.
func putNames(ctx context.Context, t Table, decided map[string]bool) error {
	rows := make(map[string]string, len(decided))
	for name, readable := range decided {
		rows[nameRows+name] = strconv.FormatBool(readable)
	}
	return t.Put(ctx, rows, false)
}
