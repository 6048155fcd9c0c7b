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
	nameRows    = "readable_name:"
)

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

// dataKeys returns the data keys whose rows begin with prefix and end with suffix.
func dataKeys(ctx context.Context, t Table, prefix, suffix string) (list []DataKey, err error) {
	err = t.Rows(ctx, prefix, below(prefix), func(key, value string) error {
		if !strings.HasSuffix(key, suffix) {
			return nil
		}
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

// dataKey returns the data key with an ID; nil when there is none.
func dataKey(ctx context.Context, t Table, id string) (*DataKey, error) {
	list, err := dataKeys(ctx, t, dataKeyRows, ":"+id)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// putDataKey stores a data key, in place of one with the same ID.
func putDataKey(ctx context.Context, t Table, d DataKey) error {
	value, err := json.Marshal(storedKey{Context: d.Context.Object(), Wrapped: base64.StdEncoding.EncodeToString(d.Key)})
	if err != nil {
		return err
	}
	return t.Put(ctx, map[string]string{rowsOf(d.Context) + d.ID: string(value)}, true)
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
