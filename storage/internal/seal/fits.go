package seal

import (
	"context"
	"fmt"

	"understudy/internal/encryption"
)

// Fits returns why a server with a configuration would not start on a database whose note of its key is known, as far as that shows without asking
// handlers; nil: it would. It would change the note then, if changes is not "": to a key with this ID, or to one of ByHandlers.
func Fits(ctx context.Context, c encryption.Configured, known string, t Table) (changes string, err error) {
	k, err := OpenKeyring(ctx, Settings{Keys: c.Keys}, t)
	if err != nil {
		return "", err
	}
	if !c.Handlers {
		note, err := k.Check(ctx, known)
		if err == nil && note != known {
			changes = k.ID()
		}
		return changes, err
	}
	if known == "" || k.fixed.has(KeyOf(known)) {
		return ByHandlers, nil
	}
	key, err := dataKey(ctx, t, KeyOf(known))
	if err == nil && key == nil {
		err = fmt.Errorf("the database is encrypted with key %s of LANGGRAPH_AES_KEY, and not by encryption.path: run understudy encrypt with both, "+
			"or remove encryption.path", KeyOf(known))
	}
	return "", err
}
