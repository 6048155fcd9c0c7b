package seal

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"understudy/internal/cursor"
)

// cursorRow is the row of the key for cursors. It is readable on an encrypted database: the key hides IDs, which give no access.
const cursorRow = "cursor_key"

// CursorKey returns the key with which all servers of a database seal places in lists. The first one makes it.
func CursorKey(ctx context.Context, t Table) (key []byte, err error) {
	read := func() error {
		return t.Rows(ctx, cursorRow, cursorRow+"\x01", func(_, value string) error {
			key, err = hex.DecodeString(value)
			if err == nil && len(key) != cursor.Size {
				err = fmt.Errorf("it has %d bytes", len(key))
			}
			if err != nil {
				err = fmt.Errorf("the row %s of the table meta is damaged: %w", cursorRow, err)
			}
			return err
		})
	}
	if err := read(); err != nil || key != nil {
		return key, err
	}
	made := make([]byte, cursor.Size)
	_, _ = rand.Read(made) // never fails
	if err := t.Put(ctx, map[string]string{cursorRow: hex.EncodeToString(made)}, false); err != nil {
		return nil, err
	}
	err = read() // another server may have been first
	return key, err
}
